#include "support/catch.hpp"

#include <zero/core/detail/text.hpp>
#include <zero/core/detail/throw_error.hpp>
#include <zero/core/error.hpp>

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace zero::test::text_test {

using zero::detail::text;

TEST_CASE("A message concatenates its pieces", "[core]") {
    std::string const name = "weight";
    CHECK(text({}).empty());
    CHECK(text({"bucket ", 3, " of '", name, '\'', std::string_view(": late")})
          == "bucket 3 of 'weight': late");
}

TEST_CASE("Numbers in a message keep their sign and their range", "[core]") {
    CHECK(text({-1, ' ', -2L, ' ', 3U, ' ', std::numeric_limits<std::size_t>::max()})
          == "-1 -2 3 18446744073709551615");
    CHECK(text({std::numeric_limits<long long>::min()}) == "-9223372036854775808");
    CHECK(text({0.5, ' ', 2.0F, ' ', -16777217.0}) == "0.5 2 -16777217");
}

TEST_CASE("A real number in a message reads back as the same number", "[core]") {
    CHECK(text({1e-8}) == "1e-08");
    CHECK(text({0.1F, ' ', 0.1}) == "0.1 0.1");
    CHECK(text({0x1p-130F, ' ', 3.4028235e38F}) == "7.34684e-40 3.4028235e+38");
    CHECK(text({1.0 / 3.0}) == "0.3333333333333333");
    CHECK(text({std::numeric_limits<double>::infinity(), ' ', -0.0}) == "inf -0");
    CHECK(text({std::numeric_limits<float>::quiet_NaN()}) == "nan");
}

TEST_CASE("An error has its message and the place of the throw", "[core]") {
    unsigned line = 0;
    try {
        line = __LINE__ + 1;
        zero::detail::throw_error<zero::InvalidArgument>({"zero: unit ", 7, " does not exist."});
    } catch (zero::InvalidArgument const& error) {
        CHECK(std::string(error.what()) == "zero: unit 7 does not exist.");
        CHECK(static_cast<unsigned>(error.where().line) == line);
    }
}

} // namespace zero::test::text_test
