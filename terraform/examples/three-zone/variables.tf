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

variable "zones" {
  description = "Availability zones of brokers and etcd."
  type        = list(string)
  default     = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]

  validation {
    condition     = length(var.zones) == 3
    error_message = "Name three zones: with two, the loss of one takes etcd's majority."
  }
}

variable "brokers_per_zone" {
  description = "Brokers in each zone."
  type        = number
  default     = 1
}

variable "instance_type" {
  description = "Type of the brokers' machines."
  type        = string
  default     = "i4i.xlarge"
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
