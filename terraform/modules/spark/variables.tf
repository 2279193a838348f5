variable "name" {
  description = "Name of the application; names of everything that is made here begin with it."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,29}$", var.name))
    error_message = "A name has up to 30 lower-case letters, digits and dashes and begins with a letter."
  }
}

variable "release_label" {
  description = "EMR release. tierlog supports Spark 4.2 and newer; the default, emr-spark-8.0.0, brings 4.0.2: audit and stats are meant for it and were not tried there, and streams do not work."
  type        = string
  default     = "emr-spark-8.0.0"

  validation {
    condition     = can(regex("^emr-(spark-)?[8-9]\\.[0-9]", var.release_label))
    error_message = "Name a release with Spark 4, such as emr-spark-8.0.0: those named emr-7 and below bring Spark 3, which tierlog's jobs do not run on."
  }
}

variable "bucket_url" {
  description = "The bucket that jobs read, s3://NAME/PREFIX: output url of the bucket module."
  type        = string

  validation {
    condition     = can(regex("^s3://[a-z0-9][a-z0-9.-]+(/[^\"' ]+)?$", var.bucket_url))
    error_message = "Write s3://BUCKET/PREFIX, as the output url of the bucket module."
  }
}

variable "reader_policy_arn" {
  description = "IAM policy of the jobs: reader of the bucket module's policy_arns."
  type        = string

  validation {
    condition     = can(regex("^arn:[a-z-]+:iam::([0-9]{12}|aws):policy/.+$", var.reader_policy_arn))
    error_message = "Give the ARN of an IAM policy: reader of the bucket module's policy_arns."
  }
}

variable "code_bucket" {
  description = "Bucket that holds the jobs' program and Python environment. Best another one than the archive's."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.code_bucket))
    error_message = "Write the name of a bucket, without s3:// and without a prefix."
  }
}

variable "code_prefix" {
  description = "Folder in that bucket, without slashes at its ends."
  type        = string
  default     = "tierlog-spark"

  validation {
    condition     = can(regex("^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$", var.code_prefix))
    error_message = "Write a folder such as tierlog-spark, without slashes at its ends."
  }
}

variable "max_vcpus" {
  description = "Most virtual processors that all jobs use together."
  type        = number
  default     = 32

  validation {
    condition     = var.max_vcpus >= 8 && floor(var.max_vcpus) == var.max_vcpus
    error_message = "Give a whole number, 8 or more: a driver and one executor take 8."
  }
}

variable "idle_minutes" {
  description = "The application is stopped when it had nothing to do for so long."
  type        = number
  default     = 15

  validation {
    condition     = var.idle_minutes >= 1 && var.idle_minutes <= 10080
    error_message = "Give 1 to 10080 minutes."
  }
}

variable "subnet_ids" {
  description = "Subnets of the jobs. Needed only for those that talk to brokers: includeHot, replay into a topic."
  type        = list(string)
  default     = []
}

variable "security_group_ids" {
  description = "Security groups of the jobs, with subnet_ids; the brokers must let them in."
  type        = list(string)
  default     = []
}

variable "tags" {
  description = "Tags of everything that is made here."
  type        = map(string)
  default     = {}
}
