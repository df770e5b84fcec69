// The module `zero`: `import zero;` gives what `#include <zero/zero.hpp>` gives, except macros.
// Everything that the header declares is exported, so no list of names can lag behind it. Under
// extern "C++" nothing is attached to the module: units that import and units that include see the
// same entities and link together. Headers of others come first, because they must not be read
// inside of the module; tests/consumer/check_module.cmake compares this list with what is read.

module;

#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#if !defined(ZERO_COMPILED)
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#endif
#endif

export module zero;

#if defined(__clang__)
#pragma clang diagnostic ignored "-Winclude-angled-in-module-purview"
#endif

// A template that a unit instantiates compares pointers of the standard library. clang++ finds the
// operators only if the module exports them.
export namespace std {
using std::operator==;
}

export extern "C++" {
#include <zero/zero.hpp>
}
