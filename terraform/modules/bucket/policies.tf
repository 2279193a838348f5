# Who may do what with the objects. tests/terraform/test_policies.py holds these against recorded requests: all are
# allowed, and nothing is allowed that was not asked for.

locals {
  rows     = "${local.arn}/${local.folder}topic=*"
  metadata = "${local.arn}/${local.folder}_tierlog/*"

  list = {
    Sid      = "List"
    Effect   = "Allow"
    Action   = ["s3:ListBucket"]
    Resource = [local.arn]
    Condition = {
      StringLike = { "s3:prefix" = ["${local.folder}_tierlog/*", "${local.folder}topic=*"] }
    }
  }

  # A reader that looks for rows which no manifest names begins at the top. Where that is the top of the bucket, S3 is asked
  # without a prefix, and no condition could hold.
  list_from_the_top = {
    Sid      = "List"
    Effect   = "Allow"
    Action   = ["s3:ListBucket"]
    Resource = [local.arn]
    Condition = {
      for operator, values in { StringLike = { "s3:prefix" = concat([local.folder], local.list.Condition.StringLike["s3:prefix"]) } } :
      operator => values if local.folder != ""
    }
  }

  statements = {
    writer = [
      local.list,
      {
        Sid      = "ReadAndWrite"
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject"]
        Resource = [local.rows, local.metadata]
      },
      {
        Sid      = "GiveUpAnUpload"
        Effect   = "Allow"
        Action   = ["s3:AbortMultipartUpload"]
        Resource = [local.rows, "${local.arn}/${local.folder}_tierlog/*/aside/*"]
      },
      {
        # The object with which a broker tries the bucket at its start, and proposals that it has answered.
        Sid      = "TidyUp"
        Effect   = "Allow"
        Action   = ["s3:DeleteObject"]
        Resource = ["${local.arn}/${local.folder}_tierlog/probe/*", "${local.arn}/${local.folder}_tierlog/*/proposals/*"]
      },
    ]
    collector = [
      local.list,
      {
        Sid      = "ReadManifests"
        Effect   = "Allow"
        Action   = ["s3:GetObject"]
        Resource = [local.metadata]
      },
      {
        Sid      = "Delete"
        Effect   = "Allow"
        Action   = ["s3:DeleteObject"]
        Resource = [local.rows, local.metadata]
      },
    ]
    reader = [
      { for name, value in local.list_from_the_top : name => value if name != "Condition" || local.folder != "" },
      {
        Sid      = "Read"
        Effect   = "Allow"
        Action   = ["s3:GetObject"]
        Resource = [local.rows, local.metadata]
      },
    ]
  }

  # S3 asks for these in the caller's name whenever an encrypted object is read or written.
  key_actions = {
    writer    = ["kms:Decrypt", "kms:GenerateDataKey"]
    collector = ["kms:Decrypt"]
    reader    = ["kms:Decrypt"]
  }

  key_statements = {
    for name, actions in local.key_actions : name => var.kms_key_arn == null ? [] : [{
      Sid      = "Key"
      Effect   = "Allow"
      Action   = actions
      Resource = [var.kms_key_arn]
      Condition = {
        StringEquals = { "kms:ViaService" = "s3.${data.aws_region.current.id}.${data.aws_partition.current.dns_suffix}" }
      }
    }]
  }

  documents = {
    for name in var.policies : name => jsonencode({
      Version   = "2012-10-17"
      Statement = concat(local.statements[name], local.key_statements[name])
    })
  }
}

resource "aws_iam_policy" "this" {
  for_each = local.documents

  name        = "${var.name}${var.prefix == "" ? "" : "-${replace(var.prefix, "/", "-")}"}-${each.key}"
  description = "tierlog: what a ${each.key} does with ${var.name}"
  policy      = each.value
  tags        = var.tags
}
