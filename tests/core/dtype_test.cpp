#include "support/catch.hpp"

#include <zero/core/dtype.hpp>

#include <string>

namespace zero::test::dtype_test {

TEST_CASE("Each element type of a collective has a name") {
    STATIC_REQUIRE(dtype_of<float>() == DType::float32);
    STATIC_REQUIRE(dtype_of<bfloat16>() == DType::bfloat16);
    STATIC_REQUIRE(dtype_of<float16>() == DType::float16);
    STATIC_REQUIRE(dtype_of<power8>() == DType::power8);
    STATIC_REQUIRE(size_of(DType::power8) == sizeof(power8));
    STATIC_REQUIRE(dtype_of<std::int64_t>() == DType::int64);
    STATIC_REQUIRE(dtype_of<std::uint64_t>() == DType::int64);
    STATIC_REQUIRE(dtype_of<std::byte>() == DType::bytes);
    STATIC_REQUIRE(dtype_of<char>() == DType::bytes);
    CHECK(name_of(DType::float32) == std::string("float32"));
    CHECK(name_of(DType::bfloat16) == std::string("bfloat16"));
    CHECK(name_of(DType::float16) == std::string("float16"));
    CHECK(name_of(DType::power8) == std::string("power8"));
    CHECK(name_of(DType::int64) == std::string("int64"));
    CHECK(name_of(DType::bytes) == std::string("bytes"));
    CHECK(name_of(static_cast<DType>(99)) == std::string("unknown"));
}

} // namespace zero::test::dtype_test
