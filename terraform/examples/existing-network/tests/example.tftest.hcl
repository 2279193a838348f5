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

override_data {
  target = module.etcd.data.aws_subnet.this[0]
  values = { availability_zone = "eu-west-1a" }
}

override_data {
  target = module.etcd.data.aws_subnet.this[1]
  values = { availability_zone = "eu-west-1b" }
}

override_data {
  target = module.etcd.data.aws_subnet.this[2]
  values = { availability_zone = "eu-west-1c" }
}

variables {
  package_source = "tierlog==0.2.0"
  vpc_id         = "vpc-0a"
  subnet_ids     = ["subnet-0a", "subnet-0b", "subnet-0c"]
  bucket_name    = "company-logs"
  client_cidrs   = ["10.0.0.0/16"]
  ami_id         = "ami-0123456789abcdef0"
  kms_key_arn    = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-0000-0000-000000000000"
}

run "defaults" {
  command = apply

  assert {
    condition     = output.bootstrap_servers == "mocked.elb.eu-west-1.amazonaws.com:9092"
    error_message = "the outputs can be used as they are"
  }

  assert {
    condition     = endswith(output.secrets_command, "/secrets.sh ./tierlog-secrets /tierlog/brokers") && startswith(output.http_url, "https://")
    error_message = "brokers are closed, and wait for their secrets"
  }
}

run "no_ids" {
  command = plan

  variables {
    vpc_id     = "mine"
    subnet_ids = ["a", "b", "c"]
  }

  expect_failures = [var.vpc_id, var.subnet_ids]
}
