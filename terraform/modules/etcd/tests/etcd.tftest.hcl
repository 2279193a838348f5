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
  name       = "tierlog"
  vpc_id     = "vpc-0a"
  subnet_ids = ["subnet-0a", "subnet-0b", "subnet-0c"]
  backups    = { bucket = "company-logs", prefix = "etcd-backups/" }
  ami_id     = "ami-0123456789abcdef0"
}

override_data {
  target = data.aws_subnet.this[0]
  values = { availability_zone = "eu-west-1a" }
}

override_data {
  target = data.aws_subnet.this[1]
  values = { availability_zone = "eu-west-1b" }
}

override_data {
  target = data.aws_subnet.this[2]
  values = { availability_zone = "eu-west-1c" }
}

run "defaults" {
  command = apply

  assert {
    condition     = length(aws_instance.member) == 3 && alltrue([for member in aws_instance.member : one(member.metadata_options).http_tokens == "required" && one(member.root_block_device).encrypted])
    error_message = "three members, IMDSv2 alone, encrypted disks"
  }

  assert {
    condition     = [for volume in aws_ebs_volume.data : volume.availability_zone] == ["eu-west-1a", "eu-west-1b", "eu-west-1c"] && alltrue([for volume in aws_ebs_volume.data : volume.encrypted && volume.final_snapshot])
    error_message = "a volume in each zone, encrypted, never lost without a snapshot"
  }

  assert {
    condition     = length(aws_vpc_security_group_egress_rule.internet) == 0
    error_message = "no way to the internet unless asked for"
  }

  assert {
    condition     = output.metadata == "etcd://etcd-1.tierlog.internal:2379,etcd-2.tierlog.internal:2379,etcd-3.tierlog.internal:2379/tierlog"
    error_message = "brokers can use it as it is"
  }

  assert {
    condition     = alltrue([for member in keys(local.members) : local.environment[member].ETCD_CLIENT_CERT_AUTH == "true" && local.environment[member].ETCD_PEER_CLIENT_CERT_AUTH == "true" && startswith(local.environment[member].ETCD_LISTEN_CLIENT_URLS, "https://")])
    error_message = "TLS with certificates on both sides"
  }

  assert {
    condition     = alltrue([for member in keys(local.members) : length(base64gzip(local.cloud_config[member])) < 16384])
    error_message = "user data is at most 16 KB"
  }
}

run "no_packages_and_no_way_to_get_them" {
  command = plan

  variables {
    ami_id = null
  }

  expect_failures = [aws_instance.member]
}

run "two_subnets_in_one_zone" {
  command = plan

  override_data {
    target = data.aws_subnet.this[1]
    values = { availability_zone = "eu-west-1a" }
  }

  expect_failures = [aws_instance.member]
}
