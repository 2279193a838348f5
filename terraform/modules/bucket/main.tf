# The bucket of the cold tier: private, encrypted, spoken to by TLS alone.

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  folder        = var.prefix == "" ? "" : "${var.prefix}/"
  backup_prefix = "${local.folder}etcd-backups/"
  arn           = "arn:${data.aws_partition.current.partition}:s3:::${var.name}"
}

resource "aws_s3_bucket" "this" {
  count = var.create ? 1 : 0

  bucket        = var.name
  force_destroy = var.force_destroy
  tags          = var.tags
}

resource "aws_s3_bucket_public_access_block" "this" {
  count = var.create ? 1 : 0

  bucket                  = aws_s3_bucket.this[0].id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "this" {
  count = var.create ? 1 : 0

  bucket = aws_s3_bucket.this[0].id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  count = var.create ? 1 : 0

  bucket = aws_s3_bucket.this[0].id

  rule {
    # One data key for many objects: a request to KMS per object would cost more than the object.
    bucket_key_enabled = var.kms_key_arn != null

    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

resource "aws_s3_bucket_versioning" "this" {
  count = var.create && var.keep_deleted_days > 0 ? 1 : 0

  bucket = aws_s3_bucket.this[0].id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_logging" "this" {
  count = var.create && var.access_log != null ? 1 : 0

  bucket        = aws_s3_bucket.this[0].id
  target_bucket = var.access_log.bucket
  target_prefix = var.access_log.prefix
}

resource "aws_s3_bucket_lifecycle_configuration" "this" {
  count = var.create ? 1 : 0

  bucket = aws_s3_bucket.this[0].id

  rule {
    id     = "unfinished-uploads"
    status = "Enabled"

    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = var.abort_multipart_days
    }
  }

  rule {
    id     = "etcd-backups"
    status = "Enabled"

    filter {
      prefix = local.backup_prefix
    }

    expiration {
      days = var.backup_days
    }
  }

  # Rows alone: manifests and indexes are small and read with every query.
  dynamic "rule" {
    for_each = length(var.colder_classes) > 0 ? [1] : []

    content {
      id     = "colder-rows"
      status = "Enabled"

      filter {
        prefix = "${local.folder}topic="
      }

      dynamic "transition" {
        for_each = var.colder_classes

        content {
          days          = transition.value.days
          storage_class = transition.value.storage_class
        }
      }
    }
  }

  dynamic "rule" {
    for_each = var.keep_deleted_days > 0 ? [1] : []

    content {
      id     = "old-versions"
      status = "Enabled"

      filter {}

      noncurrent_version_expiration {
        noncurrent_days = var.keep_deleted_days
      }
    }
  }

  depends_on = [aws_s3_bucket_versioning.this]
}

resource "aws_s3_bucket_policy" "this" {
  count = var.create ? 1 : 0

  bucket = aws_s3_bucket.this[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "OnlyByTls"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [local.arn, "${local.arn}/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
      {
        Sid       = "NoOldTls"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [local.arn, "${local.arn}/*"]
        Condition = { NumericLessThan = { "s3:TlsVersion" = "1.2" } }
      },
    ]
  })

  depends_on = [aws_s3_bucket_public_access_block.this]
}
