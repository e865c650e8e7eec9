"""A federation's processes on this machine: keys and certificates, a SuperLink, a supervised node per client."""
