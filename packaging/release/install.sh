#!/bin/sh
# Installs the mlserver executable, its manual pages and its completions, for Linux and macOS.
#
#   sh install.sh [--version VERSION] [--to FOLDER]
#
# FOLDER has bin/ and share/ afterwards; it defaults to ~/.local, or to /usr/local for root. The archive is downloaded from
# MLSERVER_DOWNLOAD_URL, or from the release that this script was published with, and its SHA-256 checksum is verified. Nothing changes if
# a step fails.
set -eu

# The whole script is read before it runs, so a download that breaks off runs nothing.
main() {
  # `packaging/release/publish` fills in the address of the releases.
  releases=
  version=latest
  if [ "$(id -u)" = 0 ]; then to=/usr/local; else to=${HOME:?HOME is not set}/.local; fi
  while [ $# -gt 0 ]; do
    case $1 in
      --version) [ $# -ge 2 ] || fail "--version needs a value"; version=$2; shift 2 ;;
      --to) [ $# -ge 2 ] || fail "--to needs a value"; to=$2; shift 2 ;;
      -h | --help) usage; exit 0 ;;
      *) fail "unknown argument \`$1\`; --help prints the arguments" ;;
    esac
  done
  case $(uname -s) in
    Linux) system=unknown-linux-musl ;;
    Darwin) system=apple-darwin ;;
    *) fail "no executable for $(uname -s); build it with cargo, or run the image in Docker" ;;
  esac
  case $(uname -m) in
    x86_64 | amd64) target=x86_64-$system ;;
    aarch64 | arm64) target=aarch64-$system ;;
    *) fail "no executable for $(uname -m); build it with cargo" ;;
  esac
  # macOS has another command for checksums.
  if command -v sha256sum >/dev/null; then checksum=sha256sum; else checksum=shasum; fi
  for tool in tar gzip "$checksum" install; do
    command -v "$tool" >/dev/null || fail "\`$tool\` is missing; install it first"
  done
  [ "$checksum" = sha256sum ] || checksum='shasum -a 256'

  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 1' HUP INT TERM
  [ -n "${MLSERVER_DOWNLOAD_URL:-$releases}" ] || fail "set MLSERVER_DOWNLOAD_URL to the address of a folder with the archives"
  if [ "$version" = latest ]; then
    base=${MLSERVER_DOWNLOAD_URL:-$releases/latest/download}
    download "$base/VERSION" "$work/VERSION"
    version=$(head -c 64 "$work/VERSION" | tr -d '[:space:]')
  else
    version=${version#v}
    base=${MLSERVER_DOWNLOAD_URL:-$releases/download/v$version}
  fi
  case $version in '' | *[!0-9A-Za-z.+-]*) fail "invalid version \`$version\`" ;; esac
  name=mlserver-$version-$target
  download "$base/$name.tar.gz" "$work/$name.tar.gz"
  download "$base/$name.tar.gz.sha256" "$work/$name.tar.gz.sha256"
  # The file may name another one, so only its checksum counts.
  read -r expected _ <"$work/$name.tar.gz.sha256" || true
  # shellcheck disable=SC2086 # The command may have options.
  found=$($checksum <"$work/$name.tar.gz")
  [ "$expected" = "${found%% *}" ] ||
    fail "the checksum of $base/$name.tar.gz is wrong: the download is damaged, or it was replaced"
  tar -xzf "$work/$name.tar.gz" -C "$work" --no-same-owner
  "$work/$name/mlserver" --version >/dev/null || fail "the executable does not run on this machine"

  # All users run what root installs.
  [ "$(id -u)" != 0 ] || umask 022
  share=$to/share
  mkdir -p "$to/bin" "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/site-functions" \
    "$share/fish/vendor_completions.d"
  install -m 644 "$work/$name"/man/*.1 "$share/man/man1/"
  install -m 644 "$work/$name/completions/mlserver.bash" "$share/bash-completion/completions/mlserver"
  install -m 644 "$work/$name/completions/_mlserver" "$share/zsh/site-functions/"
  install -m 644 "$work/$name/completions/mlserver.fish" "$share/fish/vendor_completions.d/"
  # Renamed, because the file of a running server cannot be overwritten.
  install -m 755 "$work/$name/mlserver" "$to/bin/.mlserver.new"
  mv -f "$to/bin/.mlserver.new" "$to/bin/mlserver"
  echo "installed $("$to/bin/mlserver" --version) as $to/bin/mlserver"
  case :$PATH: in
    *:"$to/bin":*) ;;
    *) echo "add $to/bin to PATH to run it as mlserver" ;;
  esac
}

usage() {
  echo "usage: sh install.sh [--version VERSION] [--to FOLDER]"
}

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

# Downloads a file of at most 512 MiB within ten minutes. Redirects stay encrypted if the address is.
download() {
  case $1 in [Hh][Tt][Tt][Pp]://*) redirects='=https,http' ;; *) redirects='=https' ;; esac
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --proto '=https,http' --proto-redir "$redirects" --max-time 600 \
      --max-filesize 536870912 --output "$2" "$1" || fail "cannot download $1"
  elif command -v wget >/dev/null; then
    headers=$(wget --quiet --server-response --timeout=60 --output-document="$2" "$1" 2>&1) || fail "cannot download $1"
    # Wget has no option for that, so the redirects that it has followed are checked.
    if [ "$redirects" = '=https' ] && echo "$headers" | grep -i '^[[:space:]]*location:[[:space:]]*[a-z][a-z0-9+.-]*:' |
      grep -qiv '^[[:space:]]*location:[[:space:]]*https:'; then
      fail "cannot download $1: it is redirected to an address without https"
    fi
  else
    fail "curl or wget is needed to download $1"
  fi
}

main "$@"
