variable "name" {
  description = "Name of the bucket."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.name))
    error_message = "A bucket's name has 3 to 63 lower-case letters, digits and dashes. Dots are refused: TLS certificates of S3 do not cover such names."
  }
}

variable "prefix" {
  description = "Folder in the bucket that is tierlog's, without slashes at its ends. Empty: the whole bucket."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^([A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*)?$", var.prefix))
    error_message = "A prefix is names of letters, digits, dots, dashes and underscores with single slashes between them, such as logs/tierlog. Leave out slashes at both ends."
  }
}

variable "create" {
  description = "Whether the bucket is made here. With false it exists already, and only the policies are made."
  type        = bool
  default     = true
}

variable "policies" {
  description = "Which IAM policies are made: writer (brokers), collector (retention and garbage collection), reader (Spark and other readers)."
  type        = set(string)
  default     = ["writer", "collector", "reader"]

  validation {
    condition     = length(var.policies) > 0 && length(setsubtract(var.policies, ["writer", "collector", "reader"])) == 0
    error_message = "Name some of writer, collector and reader."
  }
}

variable "kms_key_arn" {
  description = "KMS key that encrypts the objects. Null: S3's own keys (SSE-S3)."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.kms_key_arn))
    error_message = "Give the ARN of a key, arn:aws:kms:REGION:ACCOUNT:key/ID. An alias cannot stand in an IAM policy."
  }
}

variable "colder_classes" {
  description = "Storage classes that archived rows move to as they age, by days since they were archived. Manifests and indexes stay where they are."
  type = list(object({
    days          = number
    storage_class = string
  }))
  default = []

  validation {
    condition     = alltrue([for each in var.colder_classes : contains(["STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"], each.storage_class)])
    error_message = "Rows are read without a restore first, so only STANDARD_IA, ONEZONE_IA, INTELLIGENT_TIERING and GLACIER_IR are possible. GLACIER and DEEP_ARCHIVE answer a GET with an error."
  }

  validation {
    condition     = alltrue([for each in var.colder_classes : each.days >= 30 || contains(["INTELLIGENT_TIERING", "GLACIER_IR"], each.storage_class)])
    error_message = "S3 moves objects to STANDARD_IA and ONEZONE_IA after 30 days at the earliest: set days to 30 or more."
  }
}

variable "abort_multipart_days" {
  description = "Days after which the parts of an upload that was never finished are deleted."
  type        = number
  default     = 7

  validation {
    condition     = var.abort_multipart_days >= 1 && floor(var.abort_multipart_days) == var.abort_multipart_days
    error_message = "Give a whole number of days, 1 or more: an upload that still runs must not lose its parts."
  }
}

variable "keep_deleted_days" {
  description = "Days for which S3 keeps deleted and overwritten objects as old versions. 0: no versions."
  type        = number
  default     = 0

  validation {
    condition     = var.keep_deleted_days >= 0 && floor(var.keep_deleted_days) == var.keep_deleted_days
    error_message = "Give a whole number of days, or 0 for no versions."
  }
}

variable "backup_days" {
  description = "Days for which backups of etcd stay in the bucket."
  type        = number
  default     = 30

  validation {
    condition     = var.backup_days >= 1 && floor(var.backup_days) == var.backup_days
    error_message = "Give a whole number of days, 1 or more: with none there would be no backup."
  }
}

variable "access_log" {
  description = "Bucket and prefix that S3 writes its access log to. Null: none."
  type = object({
    bucket = string
    prefix = string
  })
  default = null
}

variable "force_destroy" {
  description = "Whether `terraform destroy` deletes the bucket with all that is in it."
  type        = bool
  default     = false
}

variable "tags" {
  description = "Tags of everything that is made here."
  type        = map(string)
  default     = {}
}
