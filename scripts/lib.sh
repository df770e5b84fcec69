# Functions that the scripts in this folder source: messages, installation of missing packages, builds.
# shellcheck shell=bash

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_root=${ZERO_BUILD_ROOT:-$root_dir/build}
needed_cmake=3.25
needed_gxx=12
needed_clangxx=14

say() { printf '== %s\n' "$*"; }
stop() { printf 'error: %s\n' "$*" >&2; exit 1; }
# usage: prints the first comment of the script that was started. refuse WHAT: says what is wrong with the arguments, and the usage.
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; }
refuse() { printf 'error: %s\n\n' "$1" >&2; usage >&2; exit 2; }
has() { command -v "$1" >/dev/null 2>&1; }

# at_least VERSION NEEDED: succeeds if VERSION is NEEDED or later.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# Prints the compiler: g++, unless CXX names another.
compiler() { printf '%s\n' "${CXX:-g++}"; }

has_header() { has "$(compiler)" && printf '#include <%s>\n' "$1" | "$(compiler)" -std=c++20 -x c++ -E - >/dev/null 2>&1; }

# is_there PACKAGE: succeeds if the contents of this Debian package are installed, from any source.
is_there() {
    case $1 in
        g++) has "$(compiler)" ;;
        clang) has clang++ ;;
        libclang-rt-dev) has clang++ && printf 'int main() {}\n' | clang++ -fsanitize=address,undefined -x c++ - -o /dev/null >/dev/null 2>&1 ;;
        cmake) has cmake ;;
        ninja-build) has ninja || has make ;;
        catch2) has_header catch2/catch.hpp || has_header catch2/catch_test_macros.hpp ;;
        libbenchmark-dev) has_header benchmark/benchmark.h ;;
        libeigen3-dev) has_header Eigen/Dense || has_header eigen3/Eigen/Dense ;;
        libcli11-dev) has_header CLI/CLI.hpp ;;
        nlohmann-json3-dev) has_header nlohmann/json.hpp ;;
        libxxhash-dev) has_header xxhash.h ;;
        libopenmpi-dev) has mpicxx ;;
        openmpi-bin) has mpirun ;;
        iproute2) has ip ;;
        lld) has ld.lld ;;
        valgrind | doxygen | clang-format-16 | clang-19 | ccache) has "$1" ;;
        *) stop "the scripts cannot detect the package '$1'" ;;
    esac
}

what_it_is() {
    case $1 in
        g++) echo "g++, the C++ compiler, version $needed_gxx or later" ;;
        clang) echo "clang++, version $needed_clangxx or later" ;;
        libclang-rt-dev) echo "the sanitizers of clang++" ;;
        lld) echo "lld, a linker (links tests in a fifth of the time)" ;;
        cmake) echo "CMake, version $needed_cmake or later" ;;
        ninja-build) echo "Ninja or make" ;;
        catch2) echo "Catch2 (tests), version 2 or 3" ;;
        libbenchmark-dev) echo "Google Benchmark" ;;
        libeigen3-dev) echo "Eigen 3 (matrix products of the training example)" ;;
        libcli11-dev) echo "CLI11 (options of the training example)" ;;
        nlohmann-json3-dev) echo "nlohmann/json (checkpoints)" ;;
        libxxhash-dev) echo "xxHash (checkpoints)" ;;
        libopenmpi-dev) echo "MPI with its compiler wrapper mpicxx (processes)" ;;
        openmpi-bin) echo "mpirun" ;;
        iproute2) echo "ip (the test of two hosts)" ;;
        ccache) echo "ccache (builds again from its cache)" ;;
        valgrind) echo "Valgrind (counts the instructions of the hot loops)" ;;
        doxygen) echo "Doxygen (the API reference)" ;;
        clang-format-16) echo "clang-format 16 (checks the formatting)" ;;
        clang-19) echo "clang++ 19 (the test of \`import zero;\`)" ;;
    esac
}

# install_missing PACKAGE...: installs what is missing, by the Debian package names. Does not call the package manager if nothing is missing.
install_missing() {
    local package missing=() as_root=()
    for package in "$@"; do
        is_there "$package" || missing+=("$package")
    done
    if [ "${#missing[@]}" -gt 0 ]; then
        if ! has apt-get; then
            printf 'error: these are missing, and this script can only install with apt-get (Debian, Ubuntu):\n' >&2
            for package in "${missing[@]}"; do printf '  - %s\n' "$(what_it_is "$package")" >&2; done
            printf 'Install them with the package manager of this system and run the script again.\n' >&2
            exit 3
        fi
        if [ "$(id -u)" -ne 0 ]; then
            has sudo || stop "missing: ${missing[*]}. Run this script as root, or install sudo, or run: apt-get install ${missing[*]}"
            as_root=(sudo)
        fi
        say "installing with apt-get: ${missing[*]}"
        run_quietly "${as_root[@]}" apt-get update || stop "apt-get update failed (its output is above); is there a network connection?"
        run_quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" \
            || stop "apt-get could not install ${missing[*]} (its output is above)"
        for package in "${missing[@]}"; do
            is_there "$package" || stop "apt-get installed $package, but $(what_it_is "$package") is still not found"
        done
    fi
    check_versions
}

# install_optional PACKAGE...: the same for tools without which some tests are skipped. Continues if they cannot be installed.
install_optional() {
    local package
    for package in "$@"; do
        is_there "$package" || (install_missing "$package") || say "continuing without $package: $(what_it_is "$package")"
    done
}

# Runs a command and shows its output only if it fails.
run_quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    [ "$status" -eq 0 ] || tail -n 60 "$log" >&2
    rm -f "$log"
    return "$status"
}

check_versions() {
    local version
    version=$(cmake --version | sed -n 's/^cmake version \([0-9.]*\).*/\1/p')
    at_least "$version" "$needed_cmake" || stop "cmake $version is too old: version $needed_cmake or later is needed (Debian 12, Ubuntu 24.04 or later have it)"
    check_compiler_version "$(compiler)"
}

check_compiler_version() {
    local version needed=$needed_gxx
    "$1" --version | grep -qi clang && needed=$needed_clangxx
    version=$("$1" -dumpversion)
    at_least "$version" "$needed" || stop "$1 is version $version, too old: $needed or later is needed"
}

# Prints the number of parallel jobs: one per processor, and at most one per 2 GB of free memory.
jobs() {
    local processors memory_limit
    processors=$(nproc 2>/dev/null || echo 2)
    memory_limit=$(awk '/^MemAvailable:/ { n = int($2 / 2000000); print (n < 1 ? 1 : n) }' /proc/meminfo 2>/dev/null)
    memory_limit=${memory_limit:-$processors}
    printf '%s\n' "${ZERO_JOBS:-$((processors < memory_limit ? processors : memory_limit))}"
}

# build_target TARGET: builds in build_dir. Shows progress on a terminal; elsewhere only the output of a failure.
build_target() {
    local show=run_quietly
    [ ! -t 1 ] || show=
    $show cmake --build "$build_dir" --target "$1" --parallel "$(jobs)"
}

# configure NAME PRESET [OPTION...]: sets build_dir and configures it. An existing folder keeps its generator.
configure() {
    local preset=$2 generator=()
    build_dir=$build_root/$1
    shift 2
    if [ ! -f "$build_dir/CMakeCache.txt" ] && [ -z "${CMAKE_GENERATOR:-}" ]; then
        if has ninja; then generator=(-G Ninja); else generator=(-G "Unix Makefiles"); fi
    fi
    (cd "$root_dir" && run_quietly cmake --preset "$preset" -B "$build_dir" "${generator[@]}" "$@")
}
