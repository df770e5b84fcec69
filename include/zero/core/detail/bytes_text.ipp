#pragma once

#include "bytes_text.hpp"
#include "text.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::string bytes_text(std::size_t bytes) {
    if (bytes < 10'000) {
        return text({bytes, " bytes"});
    }
    constexpr char const* names[] = {" kB", " MB", " GB", " TB"};
    std::size_t name = 0;
    std::size_t unit = 1000;
    for (; name < 3 && bytes / unit >= 1000; unit *= 1000) {
        ++name;
    }
    std::size_t const hundredths = bytes / (unit / 100) + (bytes / (unit / 200)) % 2; // rounded
    return text({hundredths / 100, '.', hundredths / 10 % 10, hundredths % 10, names[name]});
}

} // namespace ZERO_NAMESPACE::detail
