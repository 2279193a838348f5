variable "name" {
  description = "Name of the cluster: that of the brokers module."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,19}$", var.name))
    error_message = "A name has up to 20 lower-case letters, digits and dashes and begins with a letter."
  }
}

variable "metric_namespace" {
  description = "Namespace of the brokers' metrics in CloudWatch; that of the brokers module."
  type        = string
  default     = "tierlog"
}

variable "emails" {
  description = "Addresses that alarms are mailed to; each has to confirm a mail from AWS first."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for email in var.emails : can(regex("^[^@ ]+@[^@ ]+\\.[^@ ]+$", email))])
    error_message = "Write addresses such as oncall@example.org."
  }
}

variable "kms_key_arn" {
  description = "KMS key of the alarm topic; its policy must let cloudwatch.amazonaws.com use it. Null: none; the alarms hold no records."
  type        = string
  default     = null
}

variable "min_free_gib" {
  description = "Alarm when a broker's disk has less room than this. It refuses writes below log.min_free_bytes, 1 GiB."
  type        = number
  default     = 20

  validation {
    condition     = var.min_free_gib >= 2
    error_message = "Give 2 GiB or more: at 1 GiB brokers refuse writes, and the alarm would come too late."
  }
}

variable "max_backlog_gib" {
  description = "Alarm when more than this waits on a broker to be archived."
  type        = number
  default     = 50

  validation {
    condition     = var.max_backlog_gib > 0
    error_message = "Give more than 0 GiB: the segments being archived just now are always waiting."
  }
}

variable "tags" {
  description = "Tags of everything that is made here."
  type        = map(string)
  default     = {}
}
