#!/usr/bin/env bash
# Builds the pages of docs/ and the API reference as one web site, with Doxygen, and prints where it is. Installs Doxygen if it is missing (Debian, Ubuntu; as root or
# through sudo). Works from any folder.
#
# usage: scripts/docs.sh
# Settings: ZERO_BUILD_ROOT (the site is in its folder reference/html, build/).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if [ "${1:-}" = --help ]; then usage; exit 0; fi
[ "$#" -eq 0 ] || refuse "unknown option '$1'"

install_missing doxygen
version=$(sed -nE 's/.* version_(major|minor|patch) = ([0-9]+);.*/\2/p' "$root_dir/include/zero/core/version.hpp" | paste -sd .)
mkdir -p "$build_root/reference"
(cd "$root_dir/docs" && { cat Doxyfile; printf 'OUTPUT_DIRECTORY = "%s"\nPROJECT_NUMBER = %s\n' "$build_root/reference" "$version"; } | doxygen -) || stop "Doxygen found mistakes (above)"
say "open $build_root/reference/html/index.html"
