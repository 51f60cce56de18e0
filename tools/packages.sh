# Installs Debian packages that are missing. Sourced by tools/demo, tools/check and tools/docs.

# packages_of FILE: the names in it, without comments.
packages_of() { grep -v '^#' "$1"; }

# install_missing NAME...: asks nothing; uses apt-get as root or through sudo, and says what it installs.
install_missing() {
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    echo "All Debian packages are there."
    return
  fi
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      echo "These packages are missing, and neither root nor sudo is at hand: ${missing[*]}" >&2
      return 1
    }
    root=(sudo)
  fi
  echo "Installing: ${missing[*]}"
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
}
