variable "name" {
  description = "Name of the network."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,19}$", var.name))
    error_message = "A name has up to 20 lower-case letters, digits and dashes and begins with a letter."
  }
}

variable "cidr" {
  description = "Addresses of the VPC."
  type        = string
  default     = "10.80.0.0/16"

  validation {
    condition     = can(cidrsubnet(var.cidr, 4, 15)) && try(tonumber(split("/", var.cidr)[1]), 0) >= 16 && try(tonumber(split("/", var.cidr)[1]), 32) <= 22
    error_message = "Write a network of /16 to /22, such as 10.80.0.0/16."
  }
}

variable "zones" {
  description = "Names of the availability zones; a private subnet is made in each."
  type        = list(string)

  validation {
    condition     = length(var.zones) >= 1 && length(var.zones) <= 5 && length(distinct(var.zones)) == length(var.zones)
    error_message = "Name one to five zones, each once, such as eu-west-1a."
  }
}

variable "internet_egress" {
  description = "Whether a NAT gateway is made, so that machines can install packages. Nothing on the internet can reach them. Without it AWS's services have interface endpoints here, and images must hold the packages."
  type        = bool
  default     = false
}

variable "tags" {
  description = "Tags of everything that is made here."
  type        = map(string)
  default     = {}
}
