mock_provider "aws" {
  mock_data "aws_partition" {
    defaults = { partition = "aws", dns_suffix = "amazonaws.com" }
  }

  mock_data "aws_region" {
    defaults = { id = "eu-west-1", name = "eu-west-1" }
  }

  mock_data "aws_caller_identity" {
    defaults = { account_id = "123456789012" }
  }

  mock_data "aws_ssm_parameter" {
    defaults = { value = "ami-0123456789abcdef0" }
  }

  mock_resource "aws_iam_policy" {
    defaults = { arn = "arn:aws:iam::123456789012:policy/mocked" }
  }

  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/mocked" }
  }

  mock_resource "aws_iam_instance_profile" {
    defaults = { arn = "arn:aws:iam::123456789012:instance-profile/mocked" }
  }

  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:eu-west-1:123456789012:mocked" }
  }

  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:loadbalancer/net/mocked/1", arn_suffix = "net/mocked/1", dns_name = "mocked.elb.eu-west-1.amazonaws.com" }
  }

  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/mocked/1", arn_suffix = "targetgroup/mocked/1" }
  }

  mock_resource "aws_launch_template" {
    defaults = { id = "lt-0123456789abcdef0", latest_version = 1 }
  }

  mock_resource "aws_ebs_volume" {
    defaults = { id = "vol-0123456789abcdef0", arn = "arn:aws:ec2:eu-west-1:123456789012:volume/vol-0123456789abcdef0" }
  }
}

variables {
  name  = "tierlog"
  zones = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
}

run "defaults" {
  command = plan

  assert {
    condition     = length(aws_subnet.private) == 3 && alltrue([for subnet in aws_subnet.private : !subnet.map_public_ip_on_launch])
    error_message = "a private subnet per zone"
  }

  assert {
    condition     = length(aws_nat_gateway.this) == 0 && length(aws_internet_gateway.this) == 0 && length(aws_route.private) == 0
    error_message = "no way to the internet unless asked for"
  }

  assert {
    condition     = toset(keys(aws_vpc_endpoint.services)) == toset(["autoscaling", "ec2", "monitoring", "secretsmanager", "ssm"]) && alltrue([for each in aws_vpc_endpoint.services : each.private_dns_enabled])
    error_message = "AWS's services are reached inside the network"
  }
}

run "a_way_out" {
  command = plan

  variables {
    internet_egress = true
  }

  assert {
    condition     = length(aws_nat_gateway.this) == 1 && !aws_subnet.nat[0].map_public_ip_on_launch
    error_message = "one NAT gateway"
  }

  assert {
    condition     = length(aws_vpc_endpoint.services) == 0
    error_message = "no endpoints to pay for beside the NAT gateway"
  }
}
