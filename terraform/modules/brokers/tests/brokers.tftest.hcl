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
  name           = "tierlog"
  vpc_id         = "vpc-0a"
  subnet_ids     = ["subnet-0a", "subnet-0b", "subnet-0c"]
  bucket_url     = "s3://company-logs"
  policy_arns    = { writer = "arn:aws:iam::123456789012:policy/writer", collector = "arn:aws:iam::123456789012:policy/collector" }
  metadata       = "etcd://etcd-1.tierlog.internal:2379/tierlog"
  etcd_client    = { security_group_id = "sg-0e", parameters = { ca = "/e/ca", cert = "/e/client-cert", key = "/e/client-key" } }
  ami_id         = "ami-0123456789abcdef0"
}

run "defaults" {
  command = apply

  assert {
    condition     = keys(aws_autoscaling_group.broker) == ["1", "2", "3"] && [for group in aws_autoscaling_group.broker : one(group.vpc_zone_identifier)] == ["subnet-0a", "subnet-0b", "subnet-0c"]
    error_message = "a group per zone"
  }

  assert {
    condition     = alltrue([for group in aws_autoscaling_group.broker : group.max_size == 1 && group.min_size == 1 && group.health_check_type == "EC2" && one(group.initial_lifecycle_hook).lifecycle_transition == "autoscaling:EC2_INSTANCE_TERMINATING" && one(group.instance_maintenance_policy).max_healthy_percentage == 100])
    error_message = "one machine per slot, replaced only when it fails, the old one first, with time to stop"
  }

  assert {
    condition     = alltrue([for slot, group in aws_autoscaling_group.broker : one([for tag in group.tag : tag.value if tag.key == "tierlog:node-id"]) == slot])
    error_message = "the group keeps the node id"
  }

  assert {
    condition     = one(aws_launch_template.broker.metadata_options).http_tokens == "required" && one(aws_launch_template.broker.network_interfaces).associate_public_ip_address == "false" && one(one(aws_launch_template.broker.block_device_mappings).ebs).encrypted == "true"
    error_message = "IMDSv2 alone, no public address, encrypted disks"
  }

  assert {
    condition     = aws_lb.this[0].internal && alltrue([for group in aws_lb_target_group.this : one(group.health_check).path == "/readyz" && one(group.health_check).protocol == "HTTPS"])
    error_message = "the load balancer is inside, and asks who is ready"
  }

  assert {
    condition     = length(aws_vpc_security_group_egress_rule.internet) == 0 && length(aws_vpc_security_group_ingress_rule.clients) == 0
    error_message = "nobody comes in and nothing goes out unless asked for"
  }

  assert {
    condition     = length(base64gzip(local.cloud_config)) < 16384
    error_message = "user data is at most 16 KB"
  }

  assert {
    condition     = output.bootstrap_servers == "mocked.elb.eu-west-1.amazonaws.com:9092" && output.http_url == "https://mocked.elb.eu-west-1.amazonaws.com:8080" && output.commands.status == "tierlog cluster status --profile tierlog"
    error_message = "the outputs can be used as they are"
  }

  assert {
    condition     = endswith(output.secrets_command, "/secrets.sh ./tierlog-secrets /tierlog/brokers") && endswith(output.commands.clients, "/clients.sh ./tierlog-secrets tierlog mocked.elb.eu-west-1.amazonaws.com:9092 https://mocked.elb.eu-west-1.amazonaws.com:8080")
    error_message = "secrets are made first, clients' files from them"
  }

  assert {
    condition = alltrue([for line in [
      "TIERLOG_LISTENER__KAFKA__PROTOCOL=\"sasl_tls\"", "TIERLOG_LISTENER__HTTP__PROTOCOL=\"https\"", "TIERLOG_LISTENER__HTTP__LOGIN=\"required\"",
      "TIERLOG_LISTENER__INSIDE__CLIENT_CERTIFICATE=\"required\"", "TIERLOG_LISTENER__INSIDE_HTTP__CLIENT_CERTIFICATE=\"required\"",
      "TIERLOG_TLS__PEERS=\"CN=broker\"", "TIERLOG_AUTHORIZATION__ENABLED=\"true\"", "TIERLOG_AUTHORIZATION__SUPER_USERS=\"admin\"",
    ] : strcontains(local.environment, "${line}\n")])
    error_message = "logins over TLS, brokers by certificates, nothing without a permission"
  }

  assert {
    condition     = sort([for rule in aws_vpc_security_group_ingress_rule.brokers : tostring(rule.to_port)]) == sort(["9093", "8083"])
    error_message = "brokers call each other at ports that are theirs alone"
  }

  assert {
    condition = toset(flatten([for each in jsondecode(aws_iam_role_policy.broker.policy).Statement : each.Resource if each.Sid == "ReadParameters"])) == toset([
      for name in ["e/ca", "e/client-cert", "e/client-key", "tierlog/brokers/ca", "tierlog/brokers/ca-key", "tierlog/brokers/admin-password"] :
      "arn:aws:ssm:eu-west-1:123456789012:parameter/${name}"
    ])
    error_message = "machines read the parameters that they need, by name"
  }
}

run "opened_in_a_network_that_is_named" {
  command = apply

  variables {
    insecure     = true
    client_cidrs = ["10.1.0.0/16"]
  }

  assert {
    condition     = length(regexall("TLS|LOGIN|LISTENER|AUTHORIZATION", replace(local.environment, "ETCD", ""))) == 0 && output.commands.status == "tierlog cluster status --server http://mocked.elb.eu-west-1.amazonaws.com:8080"
    error_message = "plain ports, and commands for them"
  }

  assert {
    condition     = !strcontains(aws_iam_role_policy.broker.policy, "/tierlog/brokers") && local.node_config.certificate == null && output.secrets_command == ""
    error_message = "no secrets are needed, so none can be read"
  }

  assert {
    condition     = sort([for rule in aws_vpc_security_group_ingress_rule.brokers : tostring(rule.to_port)]) == sort(["9092", "8080"]) && one(aws_lb_target_group.this["http"].health_check).protocol == "HTTP"
    error_message = "brokers call each other at the clients' ports"
  }
}

run "opened_in_a_large_network" {
  command = plan

  variables {
    insecure     = true
    client_cidrs = ["10.0.0.0/15"]
  }

  expect_failures = [aws_launch_template.broker]
}

run "two_brokers_per_zone_with_volumes_and_clients" {
  command = apply

  variables {
    brokers_per_zone          = 2
    data_volume_gib           = 100
    internet_egress           = true
    client_cidrs              = ["10.0.0.0/16"]
    client_security_group_ids = { spark = "sg-0f" }
    package_source            = "s3://company-code/tierlog-0.2.0-py3-none-any.whl"
    kms_key_arn               = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-0000-0000-000000000000"
    secrets                   = { TIERLOG_ETCD__PASSWORD = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:etcd-AbCdEf" }
  }

  assert {
    condition     = length(aws_autoscaling_group.broker) == 6 && [for slot in ["1", "4"] : one(aws_autoscaling_group.broker[slot].vpc_zone_identifier)] == ["subnet-0a", "subnet-0a"]
    error_message = "the second broker of the first zone is number 4"
  }

  assert {
    condition     = length(aws_ebs_volume.data) == 6 && alltrue([for volume in aws_ebs_volume.data : volume.encrypted && volume.final_snapshot])
    error_message = "a volume per slot, encrypted, never lost without a snapshot"
  }

  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.clients) == 4 && length(aws_vpc_security_group_egress_rule.internet) == 2
    error_message = "both ports from both kinds of clients; packages by HTTP and HTTPS"
  }

  assert {
    condition     = local.node_config.secrets["TIERLOG_ETCD__PASSWORD"] == "arn:aws:secretsmanager:eu-west-1:123456789012:secret:etcd-AbCdEf"
    error_message = "user data names secrets and holds none"
  }

  assert {
    condition = toset(flatten([for each in jsondecode(aws_iam_role_policy.broker.policy).Statement : each.Action if each.Resource == [var.kms_key_arn]])) == toset([
      "kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo",
    ])
    error_message = "a machine can attach a volume of this key"
  }

  assert {
    condition     = endswith(aws_kms_grant.autoscaling[0].grantee_principal, "/AWSServiceRoleForAutoScaling") && contains(aws_kms_grant.autoscaling[0].operations, "CreateGrant")
    error_message = "autoscaling can make machines with volumes of this key"
  }
}

run "several_brokers_without_etcd" {
  command = plan

  variables {
    metadata        = "sqlite"
    etcd_client     = null
    data_volume_gib = 100
  }

  expect_failures = [aws_launch_template.broker]
}

run "a_single_broker_on_a_disk_that_goes_with_the_machine" {
  command = plan

  variables {
    metadata    = "sqlite"
    etcd_client = null
    subnet_ids  = ["subnet-0a"]
  }

  expect_failures = [aws_launch_template.broker]
}

run "no_packages_and_no_way_to_get_them" {
  command = plan

  variables {
    ami_id = null
  }

  expect_failures = [aws_launch_template.broker]
}
