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
  package_source = "tierlog==0.2.0"
  bucket_name    = "company-logs"
  client_cidrs   = ["10.0.0.0/16"]
  ami_id         = "ami-0123456789abcdef0"
}

run "defaults" {
  command = apply

  assert {
    condition     = output.commands.brokers.status == "tierlog cluster status --profile tierlog" && output.http_url == "https://mocked.elb.eu-west-1.amazonaws.com:8080"
    error_message = "the outputs can be used as they are"
  }

  assert {
    condition     = endswith(output.secrets_command, "/secrets.sh ./tierlog-secrets /tierlog/brokers")
    error_message = "the secrets are put where the brokers look for them"
  }
}

run "open" {
  command = apply

  variables {
    insecure     = true
    client_cidrs = ["10.80.0.0/16"]
  }

  assert {
    condition     = output.commands.brokers.status == "tierlog cluster status --server http://mocked.elb.eu-west-1.amazonaws.com:8080" && output.secrets_command == ""
    error_message = "whoever says so gets a broker without secrets"
  }
}
