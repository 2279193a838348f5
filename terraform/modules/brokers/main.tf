# Brokers: a launch template, and for each broker a group of one machine in its zone. The group is the broker's slot: it
# keeps the node id, and the data volume if there is one, however often the machine is replaced.

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_caller_identity" "current" {}

data "aws_subnet" "this" {
  count = length(var.subnet_ids)

  id = var.subnet_ids[count.index]
}

locals {
  slots = {
    for pair in setproduct(range(var.brokers_per_zone), range(length(var.subnet_ids))) :
    tostring(pair[0] * length(var.subnet_ids) + pair[1] + 1) => { zone = pair[1] }
  }
  own_volumes = var.data_volume_gib > 0 ? local.slots : {}
  hook        = "hand-over"
  image       = "resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
  tags        = merge(var.tags, { "tierlog:cluster" = var.name })
  region      = data.aws_region.current.id
  arn         = "arn:${data.aws_partition.current.partition}"
  account     = data.aws_caller_identity.current.account_id
}

resource "aws_ebs_volume" "data" {
  for_each = local.own_volumes

  availability_zone = data.aws_subnet.this[each.value.zone].availability_zone
  size              = var.data_volume_gib
  type              = "gp3"
  iops              = var.data_volume_iops
  throughput        = var.data_volume_mib_per_second
  encrypted         = true
  kms_key_id        = var.kms_key_arn
  final_snapshot    = true
  tags              = merge(local.tags, { Name = "${var.name}-${each.key}", "tierlog:node-id" = each.key })
}

resource "aws_launch_template" "broker" {
  name_prefix   = "${var.name}-broker-"
  image_id      = coalesce(var.ami_id, local.image)
  instance_type = var.instance_type
  ebs_optimized = true
  user_data     = base64gzip(local.cloud_config)
  tags          = local.tags

  # A change is for new machines. docs/DEPLOY.md says how those that run are replaced, one after the other.
  update_default_version = true

  iam_instance_profile {
    arn = aws_iam_instance_profile.broker.arn
  }

  block_device_mappings {
    device_name = "/dev/sda1"

    ebs {
      volume_size           = 20
      volume_type           = "gp3"
      encrypted             = "true"
      kms_key_id            = var.kms_key_arn
      delete_on_termination = "true"
    }
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
    instance_metadata_tags      = "enabled"
  }

  monitoring {
    enabled = true
  }

  network_interfaces {
    associate_public_ip_address = "false"
    delete_on_termination       = "true"
    security_groups             = concat([aws_security_group.broker.id], var.etcd_client[*].security_group_id)
  }

  tag_specifications {
    resource_type = "volume"
    tags          = local.tags
  }

  lifecycle {
    precondition {
      condition     = var.metadata != "sqlite" || length(local.slots) == 1
      error_message = "Several brokers need etcd: give metadata and etcd_client from the etcd module."
    }

    precondition {
      condition     = var.metadata != "sqlite" || var.data_volume_gib > 0
      error_message = "A single broker has the only copy, of records and metadata: give it a volume that outlives its machine, with data_volume_gib."
    }

    precondition {
      condition     = (var.metadata == "sqlite") == (var.etcd_client == null)
      error_message = "metadata and etcd_client go together: give both outputs of the etcd module, or none."
    }

    precondition {
      condition     = !var.insecure || alltrue([for cidr in var.client_cidrs : try(tonumber(split("/", cidr)[1]), 32) >= 16])
      error_message = "With insecure = true whoever is in client_cidrs reads, writes and deletes every topic, without a login. Name networks no larger than a /16, or leave insecure out."
    }

    precondition {
      condition     = var.internet_egress || var.ami_id != null
      error_message = "The machines could not install anything: set internet_egress = true, or name an image with the packages inside, with ami_id."
    }
  }
}

resource "aws_autoscaling_group" "broker" {
  for_each = local.slots

  name                = "${var.name}-${each.key}"
  vpc_zone_identifier = [var.subnet_ids[each.value.zone]]
  min_size            = 1
  max_size            = 1
  desired_capacity    = 1
  target_group_arns   = [for group in aws_lb_target_group.this : group.arn]

  # A broker that is not ready is not broken: it may be waiting for etcd, as all others then do. Only a machine that fails is
  # replaced; the rest is for alarms.
  health_check_type         = "EC2"
  health_check_grace_period = 600
  default_cooldown          = 60
  # The slot's machine goes before the next one comes: there is one node id and one volume.
  termination_policies = ["OldestInstance"]
  # A machine needs minutes to get its packages, and nobody has to wait for it here.
  wait_for_capacity_timeout = "0"

  instance_maintenance_policy {
    min_healthy_percentage = 0
    max_healthy_percentage = 100
  }

  launch_template {
    id      = aws_launch_template.broker.id
    version = aws_launch_template.broker.latest_version
  }

  initial_lifecycle_hook {
    name                 = local.hook
    lifecycle_transition = "autoscaling:EC2_INSTANCE_TERMINATING"
    heartbeat_timeout    = var.stop_timeout_seconds
    default_result       = "CONTINUE"
  }

  dynamic "tag" {
    for_each = merge(local.tags, {
      Name              = "${var.name}-${each.key}"
      "tierlog:node-id" = each.key
      "tierlog:group"   = "${var.name}-${each.key}"
    })

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }

  depends_on = [aws_kms_grant.autoscaling]
}
