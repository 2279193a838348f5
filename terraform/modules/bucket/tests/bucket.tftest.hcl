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
  name = "company-logs"
}

run "defaults" {
  command = plan

  assert {
    condition     = alltrue([for block in aws_s3_bucket_public_access_block.this : block.block_public_acls && block.block_public_policy && block.ignore_public_acls && block.restrict_public_buckets])
    error_message = "public access is blocked"
  }

  assert {
    condition     = one(one(aws_s3_bucket_server_side_encryption_configuration.this[0].rule).apply_server_side_encryption_by_default).sse_algorithm == "AES256"
    error_message = "objects are encrypted"
  }

  assert {
    condition     = !aws_s3_bucket.this[0].force_destroy
    error_message = "a bucket with objects is not destroyed"
  }

  assert {
    condition     = [for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule.id] == ["unfinished-uploads", "etcd-backups"]
    error_message = "parts of unfinished uploads and old backups go, and nothing else"
  }

  assert {
    condition     = alltrue([for statement in jsondecode(aws_s3_bucket_policy.this[0].policy).Statement : statement.Effect == "Deny"])
    error_message = "the bucket's own policy allows nothing"
  }

  assert {
    condition     = keys(aws_iam_policy.this) == ["collector", "reader", "writer"]
    error_message = "three policies"
  }

  assert {
    condition     = output.url == "s3://company-logs" && output.commands.verify == "tierlog archive verify --bucket s3://company-logs"
    error_message = "the outputs can be used as they are"
  }
}

run "a_folder_with_a_key_and_colder_classes" {
  command = plan

  variables {
    prefix            = "logs/tierlog"
    kms_key_arn       = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-0000-0000-000000000000"
    keep_deleted_days = 7
    access_log        = { bucket = "company-access-logs", prefix = "tierlog/" }
    colder_classes    = [{ days = 30, storage_class = "STANDARD_IA" }, { days = 90, storage_class = "GLACIER_IR" }]
  }

  assert {
    condition     = output.url == "s3://company-logs/logs/tierlog"
    error_message = "the folder is in the address"
  }

  assert {
    condition     = alltrue(flatten([for document in values(output.policy_documents) : [for statement in jsondecode(document).Statement : [for resource in statement.Resource : startswith(resource, "arn:aws:s3:::company-logs/logs/tierlog/") || resource == "arn:aws:s3:::company-logs" || resource == var.kms_key_arn]]]))
    error_message = "nothing outside of the folder is allowed"
  }

  assert {
    condition     = one([for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : one(rule.filter).prefix if rule.id == "colder-rows"]) == "logs/tierlog/topic="
    error_message = "only rows move to colder classes"
  }

  assert {
    condition     = length(aws_s3_bucket_versioning.this) == 1 && contains([for rule in aws_s3_bucket_lifecycle_configuration.this[0].rule : rule.id], "old-versions")
    error_message = "old versions are kept for a time"
  }
}

run "a_bucket_that_exists" {
  command = plan

  variables {
    create   = false
    policies = ["reader"]
  }

  assert {
    condition     = length(aws_s3_bucket.this) == 0 && length(aws_s3_bucket_policy.this) == 0 && keys(aws_iam_policy.this) == ["reader"]
    error_message = "only the policy is made"
  }
}
