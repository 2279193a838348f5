variable "name" {
  description = "Name of the cluster; names of everything that is made here begin with it."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,19}$", var.name))
    error_message = "A name has up to 20 lower-case letters, digits and dashes and begins with a letter."
  }
}

variable "vpc_id" {
  description = "VPC of the members."
  type        = string
}

variable "subnet_ids" {
  description = "One private subnet per member, each in another zone: three, or five."
  type        = list(string)

  validation {
    condition     = contains([3, 5], length(var.subnet_ids)) && length(distinct(var.subnet_ids)) == length(var.subnet_ids)
    error_message = "etcd needs a majority of its members: name three or five subnets, each once and each in another zone."
  }
}

variable "dns_zone" {
  description = "Private DNS zone that is made for the members' names. Their certificate is for these names."
  type        = string
  default     = "tierlog.internal"

  validation {
    condition     = can(regex("^[a-z0-9-]+(\\.[a-z0-9-]+)+$", var.dns_zone))
    error_message = "Write a name with a dot in it, such as tierlog.internal."
  }
}

variable "certificate_path" {
  description = "Path in SSM's parameter store with the parameters ca, member-cert, member-key, client-cert and client-key; the output certificate_command makes them."
  type        = string
  default     = "/tierlog/etcd"

  validation {
    condition     = can(regex("^(/[A-Za-z0-9._-]+)+$", var.certificate_path))
    error_message = "Write a path such as /tierlog/etcd: with a slash in front and none at its end."
  }
}

variable "certificate_kms_key_arn" {
  description = "KMS key of those parameters. Null: the account's own key for SSM."
  type        = string
  default     = null
}

variable "instance_type" {
  description = "Type of machine (x86-64)."
  type        = string
  default     = "m6i.large"

  validation {
    condition     = can(regex("^[a-z0-9-]+\\.[a-z0-9-]+$", var.instance_type)) && !can(regex("^[a-z]+[0-9]+g", var.instance_type))
    error_message = "Write a type with an x86-64 processor, such as m6i.large."
  }
}

variable "data_volume_gib" {
  description = "Size of each member's volume, which outlives its machine."
  type        = number
  default     = 20

  validation {
    condition     = var.data_volume_gib >= 10 && var.data_volume_gib <= 1000
    error_message = "Give 10 to 1000 GiB: etcd holds at most 8 GB, and its log and snapshots beside it."
  }
}

variable "kms_key_arn" {
  description = "KMS key of the volumes. Null: the account's own key for EBS."
  type        = string
  default     = null
}

variable "backups" {
  description = "Where snapshots go: output backups of the bucket module."
  type = object({
    bucket      = string
    prefix      = string
    kms_key_arn = optional(string)
  })
}

variable "backup_minutes" {
  description = "Minutes between two snapshots of a member. Members take turns."
  type        = number
  default     = 60

  validation {
    condition     = var.backup_minutes >= 5 && var.backup_minutes <= 1440
    error_message = "Give 5 to 1440 minutes."
  }
}

variable "internet_egress" {
  description = "Whether machines may reach the internet on ports 80 and 443, to install packages. Without it the image must hold them, and endpoints of AWS's services be in the VPC."
  type        = bool
  default     = false
}

variable "endpoint_cidrs" {
  description = "Networks in which interface endpoints of AWS's services are; machines may reach them on port 443."
  type        = list(string)
  default     = []
}

variable "endpoint_prefix_list_ids" {
  description = "Prefix lists of gateway endpoints (S3); machines may reach them on port 443."
  type        = list(string)
  default     = []
}

variable "ami_id" {
  description = "Image of the machines, Ubuntu 24.04 or like it. Null: Canonical's newest when a machine is made."
  type        = string
  default     = null

  validation {
    condition     = var.ami_id == null || can(regex("^ami-[0-9a-f]+$", var.ami_id))
    error_message = "Write the id of an image, ami-…."
  }
}

variable "alarm_topic_arns" {
  description = "SNS topics that alarms are sent to: output topic_arn of the monitoring module."
  type        = list(string)
  default     = []
}

variable "tags" {
  description = "Tags of everything that is made here."
  type        = map(string)
  default     = {}
}
