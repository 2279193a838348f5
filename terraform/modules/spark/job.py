"""The program of every job on EMR Serverless: the command `tierlog` with the arguments of the job."""

import sys

from tierlog.__main__ import main

sys.argv[0] = "tierlog"
main()
