# etcd: a member per zone. Address, name and data volume outlive the machine, so a member that is replaced comes back as itself.

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_caller_identity" "current" {}

data "aws_subnet" "this" {
  count = length(var.subnet_ids)

  id = var.subnet_ids[count.index]
}

data "aws_ssm_parameter" "image" {
  count = var.ami_id == null ? 1 : 0

  name = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
}

locals {
  members = { for index in range(length(var.subnet_ids)) : tostring(index + 1) => index }
  names   = { for member in keys(local.members) : member => "etcd-${member}.${var.dns_zone}" }
  tags    = merge(var.tags, { "tierlog:cluster" = var.name })
  image   = var.ami_id == null ? nonsensitive(data.aws_ssm_parameter.image[0].value) : var.ami_id
  region  = data.aws_region.current.id
  arn     = "arn:${data.aws_partition.current.partition}"
}

resource "aws_network_interface" "member" {
  for_each = local.members

  subnet_id       = var.subnet_ids[each.value]
  security_groups = [aws_security_group.member.id]
  description     = local.names[each.key]
  tags            = merge(local.tags, { Name = "${var.name}-etcd-${each.key}" })
}

resource "aws_route53_zone" "this" {
  name          = var.dns_zone
  comment       = "Members of etcd of ${var.name}"
  force_destroy = false
  tags          = local.tags

  vpc {
    vpc_id = var.vpc_id
  }
}

resource "aws_route53_record" "member" {
  for_each = local.members

  zone_id = aws_route53_zone.this.zone_id
  name    = local.names[each.key]
  type    = "A"
  ttl     = 60
  records = [aws_network_interface.member[each.key].private_ip]
}

resource "aws_ebs_volume" "data" {
  for_each = local.members

  availability_zone = data.aws_subnet.this[each.value].availability_zone
  size              = var.data_volume_gib
  type              = "gp3"
  encrypted         = true
  kms_key_id        = var.kms_key_arn
  final_snapshot    = true
  tags              = merge(local.tags, { Name = "${var.name}-etcd-${each.key}" })
}

resource "aws_instance" "member" {
  for_each = local.members

  ami                  = local.image
  instance_type        = var.instance_type
  iam_instance_profile = aws_iam_instance_profile.member.name
  ebs_optimized        = true
  monitoring           = true
  user_data_base64     = base64gzip(local.cloud_config[each.key])
  tags                 = merge(local.tags, { Name = "${var.name}-etcd-${each.key}" })

  network_interface {
    network_interface_id = aws_network_interface.member[each.key].id
    device_index         = 0
  }

  root_block_device {
    volume_size = 20
    volume_type = "gp3"
    encrypted   = true
    kms_key_id  = var.kms_key_arn
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  lifecycle {
    # A new image or user data would replace or stop all members at once. The output commands replace one at a time.
    ignore_changes = [ami, user_data_base64]

    precondition {
      condition     = var.internet_egress || var.ami_id != null
      error_message = "The machines could not install anything: set internet_egress = true, or name an image with the packages inside, with ami_id."
    }

    precondition {
      condition     = length(distinct(data.aws_subnet.this[*].availability_zone)) == length(var.subnet_ids)
      error_message = "Two of the subnets are in one zone, and its loss would take the majority with it: name subnets in different zones."
    }
  }

  depends_on = [aws_iam_role_policy.member]
}

resource "aws_volume_attachment" "data" {
  for_each = local.members

  device_name                    = "/dev/sdf"
  volume_id                      = aws_ebs_volume.data[each.key].id
  instance_id                    = aws_instance.member[each.key].id
  stop_instance_before_detaching = true
}

resource "aws_cloudwatch_metric_alarm" "machine" {
  for_each = local.members

  alarm_name          = "${var.name}-etcd-${each.key}-machine"
  alarm_description   = "The machine of etcd member ${each.key} fails its status checks. Two of three members must run: replace it with the command in the output commands."
  namespace           = "AWS/EC2"
  metric_name         = "StatusCheckFailed"
  dimensions          = { InstanceId = aws_instance.member[each.key].id }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  period              = 60
  evaluation_periods  = 3
  treat_missing_data  = "breaching"
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
  tags                = local.tags
}
