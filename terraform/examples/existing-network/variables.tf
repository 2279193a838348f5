variable "region" {
  description = "AWS region."
  type        = string
  default     = "eu-west-1"
}

variable "name" {
  description = "Name of the cluster."
  type        = string
  default     = "tierlog"
}

variable "vpc_id" {
  description = "Your VPC."
  type        = string

  validation {
    condition     = can(regex("^vpc-[0-9a-f]+$", var.vpc_id))
    error_message = "Write the id of a VPC, vpc-…."
  }
}

variable "subnet_ids" {
  description = "Three private subnets of that VPC, each in another zone."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) == 3 && alltrue([for id in var.subnet_ids : can(regex("^subnet-[0-9a-f]+$", id))])
    error_message = "Write the ids of three subnets, subnet-…, each in another zone."
  }
}

variable "endpoint_cidrs" {
  description = "Networks of the interface endpoints in your VPC (ssm, autoscaling, monitoring, ec2)."
  type        = list(string)
  default     = []
}

variable "endpoint_prefix_list_ids" {
  description = "Prefix list of the gateway endpoint of S3 in your VPC."
  type        = list(string)
  default     = []
}

variable "data_volume_gib" {
  description = "Size of each broker's EBS volume."
  type        = number
  default     = 500
}

variable "kms_key_arn" {
  description = "ARN of your KMS key, for bucket and volumes. Autoscaling is granted its use; in an account that never had an autoscaling group, first run aws iam create-service-linked-role --aws-service-name autoscaling.amazonaws.com. Null: AWS's own."
  type        = string
  default     = null
}

variable "bucket_name" {
  description = "Name of the bucket that is made; unique in all of AWS."
  type        = string
}

variable "client_cidrs" {
  description = "Networks of your clients."
  type        = list(string)
}

variable "internet_egress" {
  description = "Whether machines may reach the internet on ports 80 and 443, to install packages. Without it, name an image that holds them, with ami_id."
  type        = bool
  default     = false
}

variable "ami_id" {
  description = "Image of the machines. Null: Canonical's newest Ubuntu 24.04."
  type        = string
  default     = null
}

variable "package_source" {
  description = "What brokers install: a wheel in a bucket of yours (s3://BUCKET/NAME.whl) or at https://…, or a pip requirement with its version (tierlog==0.2.0)."
  type        = string
}

variable "alarm_emails" {
  description = "Addresses that alarms are mailed to."
  type        = set(string)
  default     = []
}

variable "insecure" {
  description = "No TLS, no logins, no permissions: whoever is in client_cidrs reads, writes and deletes every topic. Only for trying things out."
  type        = bool
  default     = false
}
