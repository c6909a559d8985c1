"""LLVM IR, by one writer for processors, PTX and AMD's GPUs."""
