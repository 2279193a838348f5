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

variable "zone" {
  description = "Availability zone of the broker."
  type        = string
  default     = "eu-west-1a"
}

variable "data_volume_gib" {
  description = "Size of the broker's volume."
  type        = number
  default     = 100
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
