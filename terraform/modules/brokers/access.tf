# What the machines may do beyond the bucket: take their own volume, read their own secrets, say that they have stopped,
# send metrics. tests/terraform/test_node.py holds this against what the program on them asks for.

locals {
  parameter_arns = concat(
    [for name in concat(values(try(var.etcd_client.parameters, {})), values(local.secrets)) : "${local.arn}:ssm:${local.region}:${local.account}:parameter${name}"],
    [for arn in values(var.secrets) : arn if strcontains(arn, ":ssm:")],
  )
  secret_arns = [for arn in values(var.secrets) : arn if strcontains(arn, ":secretsmanager:")]
  key_arns    = distinct(concat(var.secrets_kms_key_arns, compact(var.etcd_client[*].kms_key_arn)))
  # Machines attach their data volumes themselves; their root volumes are made by autoscaling.
  volume_key_arns = length(local.own_volumes) > 0 ? compact([var.kms_key_arn]) : []
  package_arn     = startswith(var.package_source, "s3://") ? "${local.arn}:s3:::${trimprefix(var.package_source, "s3://")}" : ""

  statements = [
    {
      Sid       = "SendMetrics"
      Action    = ["cloudwatch:PutMetricData"]
      Resource  = ["*"] # CloudWatch has no resources to name here; the condition does.
      Condition = { StringEquals = { "cloudwatch:namespace" = var.metric_namespace } }
    },
    {
      Sid       = "EndHandOver"
      Action    = ["autoscaling:CompleteLifecycleAction"]
      Resource  = [for slot in keys(local.slots) : "${local.arn}:autoscaling:${local.region}:${local.account}:autoScalingGroup:*:autoScalingGroupName/${var.name}-${slot}"]
      Condition = {}
    },
    {
      Sid       = "TakeOwnVolume"
      Action    = length(local.own_volumes) > 0 ? ["ec2:AttachVolume"] : []
      Resource  = concat([for volume in aws_ebs_volume.data : volume.arn], ["${local.arn}:ec2:${local.region}:${local.account}:instance/*"])
      Condition = { StringEquals = { "aws:ResourceTag/tierlog:cluster" = var.name } }
    },
    # EC2 uses the key for the machine that attaches the volume.
    {
      Sid       = "UseVolumeKey"
      Action    = length(local.volume_key_arns) > 0 ? ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"] : []
      Resource  = local.volume_key_arns
      Condition = { StringEquals = { "kms:ViaService" = "ec2.${local.region}.${data.aws_partition.current.dns_suffix}" } }
    },
    {
      Sid       = "LendVolumeKey"
      Action    = length(local.volume_key_arns) > 0 ? ["kms:CreateGrant"] : []
      Resource  = local.volume_key_arns
      Condition = { Bool = { "kms:GrantIsForAWSResource" = "true" } }
    },
    {
      Sid       = "ReadParameters"
      Action    = length(local.parameter_arns) > 0 ? ["ssm:GetParameter"] : []
      Resource  = local.parameter_arns
      Condition = {}
    },
    {
      Sid       = "ReadSecrets"
      Action    = length(local.secret_arns) > 0 ? ["secretsmanager:GetSecretValue"] : []
      Resource  = local.secret_arns
      Condition = {}
    },
    {
      Sid       = "DecryptSecrets"
      Action    = length(local.key_arns) > 0 ? ["kms:Decrypt"] : []
      Resource  = local.key_arns
      Condition = {}
    },
    {
      Sid       = "GetPackage"
      Action    = local.package_arn != "" ? ["s3:GetObject"] : []
      Resource  = [local.package_arn]
      Condition = {}
    },
  ]

  document = jsonencode({
    Version   = "2012-10-17"
    Statement = [for each in local.statements : merge({ Effect = "Allow" }, { for name, value in each : name => value if name != "Condition" || value != {} }) if length(each.Action) > 0]
  })
}

resource "aws_iam_role" "broker" {
  name_prefix = "${var.name}-broker-"
  tags        = local.tags
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "ec2.${data.aws_partition.current.dns_suffix}" }
    }]
  })
}

# Autoscaling makes the machines, with volumes of this key.
resource "aws_kms_grant" "autoscaling" {
  count = var.kms_key_arn == null ? 0 : 1

  name              = "${var.name}-autoscaling"
  key_id            = var.kms_key_arn
  grantee_principal = "${local.arn}:iam::${local.account}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
  operations        = ["CreateGrant", "Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext", "ReEncryptFrom", "ReEncryptTo"]
}

resource "aws_iam_role_policy" "broker" {
  name   = "machine"
  role   = aws_iam_role.broker.id
  policy = local.document
}

resource "aws_iam_role_policy_attachment" "bucket" {
  for_each = var.policy_arns

  role       = aws_iam_role.broker.name
  policy_arn = each.value
}

resource "aws_iam_instance_profile" "broker" {
  name_prefix = "${var.name}-broker-"
  role        = aws_iam_role.broker.name
  tags        = local.tags

  # A broker that starts without its policies ends its start: the bucket refuses it.
  depends_on = [aws_iam_role_policy.broker, aws_iam_role_policy_attachment.bucket]
}
