# Spark over the archive, without brokers: an EMR Serverless application, and a role that can read the archive and nothing else.

data "aws_partition" "current" {}

data "aws_region" "current" {}

data "aws_caller_identity" "current" {}

locals {
  code         = "s3://${var.code_bucket}/${var.code_prefix}"
  code_arn     = "arn:${data.aws_partition.current.partition}:s3:::${var.code_bucket}/${var.code_prefix}/*"
  applications = "arn:${data.aws_partition.current.partition}:emr-serverless:${data.aws_region.current.id}:${data.aws_caller_identity.current.account_id}:/applications/*"
  environment  = "${local.code}/environment.tar.gz"

  # Of the packed environment, on driver and executors.
  spark_parameters = join(" ", [
    "--conf spark.archives=${local.environment}#environment",
    "--conf spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON=./environment/bin/python",
    "--conf spark.emr-serverless.driverEnv.PYSPARK_PYTHON=./environment/bin/python",
    "--conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python",
  ])

  jobs = {
    audit = ["spark", "audit", "--bucket", var.bucket_url, "--json"]
    stats = ["spark", "stats", "--bucket", var.bucket_url, "--json"]
  }
}

resource "aws_emrserverless_application" "this" {
  name          = var.name
  type          = "SPARK"
  release_label = var.release_label
  tags          = var.tags

  maximum_capacity {
    cpu    = "${var.max_vcpus} vCPU"
    memory = "${var.max_vcpus * 8} GB"
  }

  auto_start_configuration {
    enabled = true
  }

  auto_stop_configuration {
    enabled              = true
    idle_timeout_minutes = var.idle_minutes
  }

  dynamic "network_configuration" {
    for_each = length(var.subnet_ids) > 0 ? [1] : []

    content {
      subnet_ids         = var.subnet_ids
      security_group_ids = var.security_group_ids
    }
  }

  lifecycle {
    precondition {
      condition     = (length(var.subnet_ids) > 0) == (length(var.security_group_ids) > 0)
      error_message = "subnet_ids and security_group_ids go together: give both, or none."
    }
  }
}

resource "aws_s3_object" "job" {
  bucket       = var.code_bucket
  key          = "${var.code_prefix}/job.py"
  content      = file("${path.module}/job.py")
  content_type = "text/x-python"
  tags         = var.tags
}

resource "aws_iam_role" "job" {
  name_prefix = "${var.name}-"
  tags        = var.tags
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "emr-serverless.amazonaws.com" }
      Condition = {
        StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id }
        ArnLike      = { "aws:SourceArn" = local.applications }
      }
    }]
  })
}

resource "aws_iam_role_policy" "code" {
  name = "code"
  role = aws_iam_role.job.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid      = "GetCode"
      Effect   = "Allow"
      Action   = ["s3:GetObject"]
      Resource = [local.code_arn]
    }]
  })
}

resource "aws_iam_role_policy_attachment" "reader" {
  role       = aws_iam_role.job.name
  policy_arn = var.reader_policy_arn
}
