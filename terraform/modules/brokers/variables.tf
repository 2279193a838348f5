variable "name" {
  description = "Name of the cluster; names of everything that is made here begin with it."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,19}$", var.name))
    error_message = "A name has up to 20 lower-case letters, digits and dashes and begins with a letter: load balancers take no longer names."
  }
}

variable "vpc_id" {
  description = "VPC of the brokers."
  type        = string
}

variable "subnet_ids" {
  description = "One private subnet per zone. A zone is a rack: replicas of a partition stand in different ones."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) > 0 && length(distinct(var.subnet_ids)) == length(var.subnet_ids)
    error_message = "Name at least one subnet, each once: one per zone."
  }
}

variable "brokers_per_zone" {
  description = "Brokers in each zone. Each has an autoscaling group of its own, of one machine, which keeps its node id."
  type        = number
  default     = 1

  validation {
    condition     = var.brokers_per_zone >= 1 && floor(var.brokers_per_zone) == var.brokers_per_zone
    error_message = "Give a whole number, 1 or more."
  }
}

variable "instance_type" {
  description = "Type of machine (x86-64). With data_volume_gib = 0 it needs a disk of its own, as i4i, i3en and m6id types have."
  type        = string
  default     = "i4i.xlarge"

  validation {
    condition     = can(regex("^[a-z0-9-]+\\.[a-z0-9-]+$", var.instance_type))
    error_message = "Write a type such as i4i.xlarge."
  }

  validation {
    condition     = !can(regex("^[a-z]+[0-9]+g", var.instance_type))
    error_message = "This is a type with an ARM processor, and the default image is for x86-64: choose another, such as i4i.xlarge."
  }
}

variable "data_volume_gib" {
  description = "Size of each broker's EBS volume, which outlives its machine. 0: the disks inside the machine; a new machine copies everything from the other brokers."
  type        = number
  default     = 0

  validation {
    condition     = var.data_volume_gib == 0 || (var.data_volume_gib >= 10 && var.data_volume_gib <= 16384)
    error_message = "Give 10 to 16384 GiB, or 0 for the disks inside the machine."
  }
}

variable "data_volume_iops" {
  description = "Input and output operations per second of each EBS volume."
  type        = number
  default     = 3000

  validation {
    condition     = var.data_volume_iops >= 3000 && var.data_volume_iops <= 16000
    error_message = "A gp3 volume has 3000 to 16000 IOPS."
  }
}

variable "data_volume_mib_per_second" {
  description = "Throughput of each EBS volume."
  type        = number
  default     = 250

  validation {
    condition     = var.data_volume_mib_per_second >= 125 && var.data_volume_mib_per_second <= 1000
    error_message = "A gp3 volume moves 125 to 1000 MiB per second."
  }
}

variable "kms_key_arn" {
  description = "KMS key of the EBS volumes, by its ARN. Autoscaling is granted its use; in an account that never had an autoscaling group, first run aws iam create-service-linked-role --aws-service-name autoscaling.amazonaws.com. Null: the account's own key for EBS."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/.+$", var.kms_key_arn))
    error_message = "Give the ARN of a key, arn:aws:kms:REGION:ACCOUNT:key/ID. An alias cannot stand in an IAM policy."
  }
}

variable "bucket_url" {
  description = "The bucket of the cold tier, s3://NAME/PREFIX: output url of the bucket module."
  type        = string

  validation {
    condition     = can(regex("^s3://[a-z0-9][a-z0-9.-]+(/[^\"' ]+)?$", var.bucket_url))
    error_message = "Write s3://BUCKET/PREFIX, as the output url of the bucket module."
  }
}

variable "policy_arns" {
  description = "IAM policies of the brokers by a name of yours: writer and collector of the bucket module's policy_arns."
  type        = map(string)

  validation {
    condition     = length(var.policy_arns) > 0
    error_message = "Without a policy the brokers cannot use the bucket: give writer and collector of the bucket module's policy_arns."
  }
}

variable "package_source" {
  description = "What is installed: a wheel in S3 (s3://BUCKET/KEY.whl), the address of a wheel (https://…/NAME.whl), or a pip requirement with its version (tierlog==0.2.0)."
  type        = string

  validation {
    condition     = can(regex("^(s3://[^ ]+\\.whl|https://[^ ]+\\.whl|[A-Za-z0-9._-]+(\\[[a-z,]+\\])?==[0-9A-Za-z.]+)$", var.package_source))
    error_message = "Give a wheel that you have put into a bucket, s3://BUCKET/NAME.whl, the address of a wheel, https://…/NAME.whl, or a pip requirement with its version, such as tierlog==0.2.0: it is installed as root."
  }
}

variable "metadata" {
  description = "Where cluster metadata is: output metadata of the etcd module, or sqlite for a single broker."
  type        = string
  default     = "sqlite"

  validation {
    condition     = var.metadata == "sqlite" || can(regex("^etcd://[A-Za-z0-9._:,-]+(/[A-Za-z0-9._/-]+)?$", var.metadata))
    error_message = "Write sqlite or etcd://HOST:PORT,HOST:PORT/NAME, as the output metadata of the etcd module."
  }
}

variable "etcd_client" {
  description = "How brokers reach etcd: output client of the etcd module. Null with sqlite."
  type = object({
    security_group_id = string
    parameters        = map(string)
    kms_key_arn       = optional(string)
  })
  default = null
}

variable "secrets" {
  description = "Secret settings: environment variable (TIERLOG_ETCD__PASSWORD) to the ARN of a parameter in SSM or of a secret in Secrets Manager."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.secrets) : can(regex("^TIERLOG_[A-Z0-9]+__[A-Z0-9_]+$", name))])
    error_message = "Name each secret by its setting's environment variable, such as TIERLOG_ETCD__PASSWORD for etcd.password."
  }

  validation {
    condition     = alltrue([for arn in values(var.secrets) : can(regex("^arn:[a-z-]+:(ssm:[a-z0-9-]+:[0-9]{12}:parameter/|secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:).+$", arn))])
    error_message = "Give the ARN of an SSM parameter or of a secret in Secrets Manager, never the secret itself: it would lie in Terraform's state."
  }
}

variable "secrets_kms_key_arns" {
  description = "KMS keys that the secrets and parameters are encrypted with, where those are not the account's own."
  type        = list(string)
  default     = []
}

variable "settings" {
  description = "Other settings by their keys in docs/SETTINGS.md, such as { \"topic.min.insync.replicas\" = \"2\" }."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for key, value in var.settings : can(regex("^[a-z]+(\\.[a-z_]+)+$", key)) && can(regex("^[^\\n\"\\\\]*$", value))])
    error_message = "A key is section.name, as docs/SETTINGS.md lists them; a value is one line without quotes and backslashes."
  }

  validation {
    condition     = length(setintersection(keys(var.settings), ["cluster.node_id", "cluster.rack", "cluster.metadata", "kafka.advertised_host", "kafka.host", "kafka.port", "http.host", "http.port", "store.bucket", "log.data_dir"])) == 0
    error_message = "Node ids, addresses, ports, the bucket, metadata and the data directory are set by this module: use its own variables."
  }

  validation {
    condition     = length(setintersection(keys(var.settings), ["etcd.password", "login.first_password"])) == 0
    error_message = "A password belongs into secrets, not into settings: it would lie in Terraform's state."
  }

  validation {
    condition     = !anytrue([for key in keys(var.settings) : can(regex("^(tls|login|listener\\.(kafka|http|inside|inside_http))\\.|^authorization\\.enabled$", key)) && key != "login.first_password"])
    error_message = "Listeners, certificates, the first user and authorization are set by this module, so that nobody comes in without a login: secrets_path names what they need, insecure = true opens them."
  }
}

variable "secrets_path" {
  description = "Path in SSM's parameter store with the parameters ca and ca-key (the authority that signs brokers' certificates) and admin-password (of the first user); the output secrets_command makes them."
  type        = string
  default     = "/tierlog/brokers"

  validation {
    condition     = can(regex("^(/[A-Za-z0-9._-]+)+$", var.secrets_path))
    error_message = "Write a path such as /tierlog/brokers: with a slash in front and none at its end."
  }
}

variable "insecure" {
  description = "No TLS, no logins, no permissions: whoever reaches the ports reads, writes and deletes every topic. Only for trying things out, in a network of your own."
  type        = bool
  default     = false
}

variable "client_cidrs" {
  description = "Networks from which clients may connect, to brokers and load balancer."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in var.client_cidrs : can(cidrhost(cidr, 0))])
    error_message = "Write networks such as 10.0.0.0/16."
  }

  validation {
    condition     = alltrue([for cidr in var.client_cidrs : try(tonumber(split("/", cidr)[1]), 32) >= 8])
    error_message = "This would let everybody knock at the brokers: name the networks of your clients, none larger than a /8."
  }
}

variable "client_security_group_ids" {
  description = "Security groups whose members may connect, to brokers and load balancer."
  type        = map(string)
  default     = {}
}

variable "kafka_port" {
  description = "Port for Kafka clients."
  type        = number
  default     = 9092

  validation {
    condition     = var.kafka_port > 1023 && var.kafka_port < 65536 && !contains([8083, 9093], var.kafka_port)
    error_message = "Choose a port from 1024 to 65535, as the broker does not run as root; 8083 and 9093 are for brokers among themselves."
  }
}

variable "http_port" {
  description = "Port for HTTP: the API, metrics and readiness."
  type        = number
  default     = 8080

  validation {
    condition     = var.http_port > 1023 && var.http_port < 65536 && !contains([8083, 9093], var.http_port)
    error_message = "Choose a port from 1024 to 65535, as the broker does not run as root; 8083 and 9093 are for brokers among themselves."
  }
}

variable "load_balancer" {
  description = "Whether an internal network load balancer is made, as one address for bootstrap and HTTP."
  type        = bool
  default     = true
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
  description = "Image of the machines, Ubuntu 24.04 or like it. Null: Canonical's newest when a machine starts."
  type        = string
  default     = null

  validation {
    condition     = var.ami_id == null || can(regex("^ami-[0-9a-f]+$", var.ami_id))
    error_message = "Write the id of an image, ami-…."
  }
}

variable "stop_timeout_seconds" {
  description = "How long a machine that is to be terminated may take to hand its partitions to others."
  type        = number
  default     = 300

  validation {
    condition     = var.stop_timeout_seconds >= 30 && var.stop_timeout_seconds <= 7200
    error_message = "Give 30 to 7200 seconds."
  }
}

variable "metric_namespace" {
  description = "Namespace of the brokers' metrics in CloudWatch; that of the monitoring module."
  type        = string
  default     = "tierlog"
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
