# A cluster over three zones: it goes on when one of them is lost. Brokers keep records on the disks inside their machines.

provider "aws" {
  region = var.region

  default_tags {
    tags = { project = var.name }
  }
}

module "network" {
  source = "../../modules/network"

  name            = var.name
  zones           = var.zones
  internet_egress = var.internet_egress
}

module "bucket" {
  source = "../../modules/bucket"

  name           = var.bucket_name
  colder_classes = [{ days = 90, storage_class = "STANDARD_IA" }]
}

module "monitoring" {
  source = "../../modules/monitoring"

  name   = var.name
  emails = var.alarm_emails
}

module "etcd" {
  source = "../../modules/etcd"

  name                     = var.name
  vpc_id                   = module.network.vpc_id
  subnet_ids               = module.network.subnet_ids
  backups                  = module.bucket.backups
  internet_egress          = var.internet_egress
  endpoint_cidrs           = [module.network.cidr]
  endpoint_prefix_list_ids = [module.network.s3_prefix_list_id]
  ami_id                   = var.ami_id
  alarm_topic_arns         = [module.monitoring.topic_arn]
}

module "brokers" {
  source = "../../modules/brokers"

  name                     = var.name
  vpc_id                   = module.network.vpc_id
  subnet_ids               = module.network.subnet_ids
  brokers_per_zone         = var.brokers_per_zone
  instance_type            = var.instance_type
  bucket_url               = module.bucket.url
  policy_arns              = { for name in ["writer", "collector"] : name => module.bucket.policy_arns[name] }
  package_source           = var.package_source
  secrets_path             = "/${var.name}/brokers"
  insecure                 = var.insecure
  metadata                 = module.etcd.metadata
  etcd_client              = module.etcd.client
  settings                 = { "topic.min.insync.replicas" = "2" }
  client_cidrs             = concat([module.network.cidr], var.client_cidrs)
  internet_egress          = var.internet_egress
  endpoint_cidrs           = [module.network.cidr]
  endpoint_prefix_list_ids = [module.network.s3_prefix_list_id]
  ami_id                   = var.ami_id
  alarm_topic_arns         = [module.monitoring.topic_arn]
}
