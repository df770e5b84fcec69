#include "support/catch.hpp"

#include <zero/core/detail/text.hpp>

#include <limits>

namespace zero::test::bytes_text_test {

using detail::bytes_text;

TEST_CASE("Fewer than 10000 bytes are printed as they are") {
    CHECK(bytes_text(0) == "0 bytes");
    CHECK(bytes_text(9'999) == "9999 bytes");
}

TEST_CASE("More bytes are rounded to two decimals of a decimal unit") {
    CHECK(bytes_text(10'000) == "10.00 kB");
    CHECK(bytes_text(10'004) == "10.00 kB");
    CHECK(bytes_text(10'005) == "10.01 kB");
    CHECK(bytes_text(1'000'000) == "1.00 MB");
    CHECK(bytes_text(436'224'000) == "436.22 MB");
    CHECK(bytes_text(436'225'000) == "436.23 MB");
    CHECK(bytes_text(1'486'905'344) == "1.49 GB");
    CHECK(bytes_text(16'060'522'496) == "16.06 GB");
    CHECK(bytes_text(2'000'000'000'000) == "2.00 TB");
    CHECK(bytes_text(std::numeric_limits<std::size_t>::max()) == "18446744.07 TB");
}

} // namespace zero::test::bytes_text_test
