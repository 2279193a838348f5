# One broker with its own volume and metadata, for trying things out. Its loss is an outage, until its group has made a new machine.

provider "aws" {
  region = var.region

  default_tags {
    tags = { project = var.name }
  }
}

module "network" {
  source = "../../modules/network"

  name            = var.name
  zones           = [var.zone]
  internet_egress = var.internet_egress
}

module "bucket" {
  source = "../../modules/bucket"

  name     = var.bucket_name
  policies = ["writer", "collector"]
}

module "monitoring" {
  source = "../../modules/monitoring"

  name         = var.name
  emails       = var.alarm_emails
  min_free_gib = 10
}

module "brokers" {
  source = "../../modules/brokers"

  name                     = var.name
  vpc_id                   = module.network.vpc_id
  subnet_ids               = module.network.subnet_ids
  instance_type            = "m6i.large"
  data_volume_gib          = var.data_volume_gib
  bucket_url               = module.bucket.url
  policy_arns              = module.bucket.policy_arns
  package_source           = var.package_source
  secrets_path             = "/${var.name}/brokers"
  insecure                 = var.insecure
  client_cidrs             = concat([module.network.cidr], var.client_cidrs)
  internet_egress          = var.internet_egress
  endpoint_cidrs           = [module.network.cidr]
  endpoint_prefix_list_ids = [module.network.s3_prefix_list_id]
  ami_id                   = var.ami_id
  alarm_topic_arns         = [module.monitoring.topic_arn]
}
