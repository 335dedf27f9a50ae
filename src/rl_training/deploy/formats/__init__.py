"""The formats of an exported policy, one file each; all of them write down the same `Program`."""
