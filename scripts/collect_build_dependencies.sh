#!/usr/bin/env bash
# Copies what the build finds in system packages (headers, CMake files, GoogleTest's libraries) into
# a folder, for a machine that has a compiler but no network:
#   scripts/collect_build_dependencies.sh DIR     then cmake -DCMAKE_PREFIX_PATH=DIR/usr ...
# Works on Debian and Ubuntu, where dpkg knows the files. With the folder of an unpacked
# nvidia-cudnn-frontend wheel as second argument its headers come along.
set -euo pipefail

[[ $# == 1 || $# == 2 ]] ||
  { echo "usage: collect_build_dependencies.sh DIR [CUDNN_FRONTEND]" >&2; exit 2; }
packages=(nlohmann-json3-dev libcli11-dev libgtest-dev libgmock-dev)
for package in "${packages[@]}"; do
  dpkg -s "$package" >/dev/null 2>&1 ||
    { echo "missing: apt-get install ${packages[*]}" >&2; exit 2; }
done
mkdir -p "$1"
dpkg -L "${packages[@]}" | sort -u | while read -r file; do
  case $file in
    /usr/share/doc/* | *.pc) continue ;;
    /usr/include/* | /usr/share/cmake/* | /usr/lib/*) ;;
    *) continue ;;
  esac
  [[ -f $file ]] || continue
  mkdir -p "$1$(dirname "$file")"
  cp -L "$file" "$1$file"
done
if [[ $# == 2 ]]; then
  cp -r "$2/include/." "$1/usr/include"
fi
du -sh "$1"
