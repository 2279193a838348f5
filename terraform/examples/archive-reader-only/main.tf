# Spark over the archive of a cluster that runs elsewhere, or no longer: a role that can only read, and no broker.

provider "aws" {
  region = var.region

  default_tags {
    tags = { project = var.name }
  }
}

module "bucket" {
  source = "../../modules/bucket"

  name        = var.bucket_name
  prefix      = var.bucket_prefix
  kms_key_arn = var.kms_key_arn
  create      = false
  policies    = ["reader"]
}

module "spark" {
  source = "../../modules/spark"

  name              = var.name
  bucket_url        = module.bucket.url
  reader_policy_arn = module.bucket.policy_arns["reader"]
  code_bucket       = var.code_bucket
}
