# A cluster in a network that you have: nothing of the network is made or changed. Brokers keep records on EBS volumes.

provider "aws" {
  region = var.region

  default_tags {
    tags = { project = var.name }
  }
}

module "bucket" {
  source = "../../modules/bucket"

  name        = var.bucket_name
  kms_key_arn = var.kms_key_arn
}

module "monitoring" {
  source = "../../modules/monitoring"

  name   = var.name
  emails = var.alarm_emails
}

module "etcd" {
  source = "../../modules/etcd"

  name                     = var.name
  vpc_id                   = var.vpc_id
  subnet_ids               = var.subnet_ids
  dns_zone                 = "${var.name}.internal"
  certificate_path         = "/${var.name}/etcd"
  kms_key_arn              = var.kms_key_arn
  backups                  = module.bucket.backups
  internet_egress          = var.internet_egress
  endpoint_cidrs           = var.endpoint_cidrs
  endpoint_prefix_list_ids = var.endpoint_prefix_list_ids
  ami_id                   = var.ami_id
  alarm_topic_arns         = [module.monitoring.topic_arn]
}

module "brokers" {
  source = "../../modules/brokers"

  name                     = var.name
  vpc_id                   = var.vpc_id
  subnet_ids               = var.subnet_ids
  instance_type            = "m6i.xlarge"
  data_volume_gib          = var.data_volume_gib
  kms_key_arn              = var.kms_key_arn
  bucket_url               = module.bucket.url
  policy_arns              = { for name in ["writer", "collector"] : name => module.bucket.policy_arns[name] }
  package_source           = var.package_source
  secrets_path             = "/${var.name}/brokers"
  insecure                 = var.insecure
  metadata                 = module.etcd.metadata
  etcd_client              = module.etcd.client
  settings                 = { "topic.min.insync.replicas" = "2" }
  client_cidrs             = var.client_cidrs
  internet_egress          = var.internet_egress
  endpoint_cidrs           = var.endpoint_cidrs
  endpoint_prefix_list_ids = var.endpoint_prefix_list_ids
  ami_id                   = var.ami_id
  alarm_topic_arns         = [module.monitoring.topic_arn]
}
