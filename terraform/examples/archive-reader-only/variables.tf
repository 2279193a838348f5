variable "region" {
  description = "AWS region; that of the bucket."
  type        = string
  default     = "eu-west-1"
}

variable "name" {
  description = "Name of the application."
  type        = string
  default     = "tierlog-readers"
}

variable "bucket_name" {
  description = "Name of the bucket that a cluster archives to. It is not changed."
  type        = string
}

variable "bucket_prefix" {
  description = "Folder in that bucket, without slashes at its ends."
  type        = string
  default     = ""
}

variable "kms_key_arn" {
  description = "KMS key of that bucket, if it has one."
  type        = string
  default     = null
}

variable "code_bucket" {
  description = "Name of a bucket of yours for the jobs' program and Python environment."
  type        = string
}
