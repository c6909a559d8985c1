"""SPIR-V for Vulkan's compute (docs/design/spirv.md)."""
