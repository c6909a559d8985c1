#!/usr/bin/env bash
# The conformance suite on a further device of a kind, whose name has a number: the others run in every test run.
set -euo pipefail
cd "$(dirname "$0")/../../.."
exec python -m hcq.cli conformance --device CLANG:1
