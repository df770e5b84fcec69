#include "support/catch.hpp"
#include "support/safetensors.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint_error.hpp>
#include <zero/checkpoint/detail/safetensors_header.hpp>
#include <zero/checkpoint/safetensors_reader.hpp>
#include <zero/tier/detail/checksum.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace zero::test::safetensors_reader_test {

namespace {

constexpr std::uint64_t block = 2048;
constexpr std::uint64_t blocks_of_group = 256;

} // namespace

TEST_CASE("Random ranges of random tensors equal what was written, and little more is read") {
    TemporaryFolder const folder;
    std::mt19937_64 random(7);
    std::vector<TensorEntry> tensors;
    std::uint64_t total = 0;
    for (std::uint64_t const bytes : {5U, 2048U, 0U, 40'000U, 1U, 3'000'000U, 2043U, 100U}) {
        tensors.push_back({"t" + std::to_string(tensors.size()), "U8", {bytes}});
        total += bytes;
    }
    auto const data = numbered_bytes(total);
    std::uint64_t const checksum = write_tensors(folder / "file", tensors, data);
    SafetensorsReader reader(folder / "file", checksum);
    for (int turn = 0; turn < 2000; ++turn) {
        TensorEntry const& tensor = reader.tensors()[random() % tensors.size()];
        std::uint64_t const size = tensor.end - tensor.begin;
        std::uint64_t const offset = random() % (size + 1);
        std::uint64_t const count =
            random() % (std::min(size - offset, turn % 10 == 0 ? size : 50'000) + 1);
        std::vector<std::byte> bytes(count);
        std::uint64_t const before = reader.bytes_read();
        reader.read(tensor, offset, bytes);
        std::uint64_t const read = reader.bytes_read() - before;
        bool const is_equal =
            std::equal(bytes.begin(), bytes.end(),
                       data.begin() + static_cast<std::ptrdiff_t>(tensor.begin + offset));
        if (!is_equal || read > count + 2 * block + 8 * total / block + 8) {
            FAIL("turn " << turn << ": " << count << " bytes at " << offset << " of " << tensor.name
                         << ", " << read << " read");
        }
    }
    CHECK(reader.bytes_read() > 0);
}

TEST_CASE("The text of a checksum has sixteen digits, the highest first") {
    constexpr std::uint64_t checksum = 0x0123'4567'89AB'CDEF;
    CHECK(detail::checksum_text(checksum) == "0123456789abcdef");
    CHECK(detail::checksum_from("0123456789abcdef") == checksum);
    CHECK(detail::checksum_text(~checksum) == "fedcba9876543210");
    CHECK_FALSE(detail::checksum_from("0123456789abcde"));
}

TEST_CASE("Opening reads the header and the checksums of checksums only") {
    TemporaryFolder const folder;
    std::uint64_t const bytes = 100 * block + 1;
    std::uint64_t const checksums = 8 * 101;
    write_tensors(folder / "file", {{"x", "U8", {bytes}}}, numbered_bytes(bytes));
    SafetensorsReader reader(folder / "file");
    std::uint64_t const size = std::filesystem::file_size(folder / "file");
    CHECK(reader.bytes_read() == size - bytes - checksums);

    // Neighbours in one block are read once.
    std::vector<std::byte> four(4);
    for (std::uint64_t offset = 0; offset + 4 <= block; offset += 4) {
        reader.read(*reader.find("x"), offset, four);
    }
    CHECK(reader.bytes_read() == size - bytes + block);
}

TEST_CASE("Verifying reads what it covers and keeps nothing") {
    TemporaryFolder const folder;
    std::uint64_t const bytes = 3'000'000;
    write_tensors(folder / "file", {{"a", "U8", {9}}, {"b", "U8", {bytes}}},
                  numbered_bytes(bytes + 9));
    SafetensorsReader reader(folder / "file");
    std::uint64_t const index = reader.bytes_read();
    reader.verify(*reader.find("b"), 0, bytes);
    CHECK(reader.bytes_read() - index >= bytes);
    CHECK(reader.bytes_read() - index <= bytes + 2 * block + 8 * 1465);

    std::string content = content_of(folder / "file");
    content[content.size() - 8 * (1465 + 6) - 1] ^= 1; // the last byte of the data
    set_content(folder / "file", content);
    SafetensorsReader damaged(folder / "file");
    damaged.verify(*damaged.find("a"), 0, 9);
    damaged.verify(*damaged.find("b"), 0, 2'900'000);
    CHECK_THROWS_WITH(damaged.verify(*damaged.find("b"), 0, bytes),
                      contains_text("tensor 'b'") && contains_text((folder / "file").string()));
    CHECK_THROWS_AS(damaged.verify(*damaged.find("b"), bytes - 1, 1), CheckpointError);
}

TEST_CASE("Large reads read each byte once, and small ones in turn from several tensors few more") {
    TemporaryFolder const folder;
    std::uint64_t const bytes = 3'000'000;
    auto const data = numbered_bytes(4 * bytes);
    write_tensors(folder / "file",
                  {{"a", "U8", {bytes}}, {"b", "U8", {bytes}}, {"c", "U8", {2 * bytes}}}, data);
    SafetensorsReader reader(folder / "file");
    std::uint64_t before = reader.bytes_read();
    CHECK(std::equal(data.begin(), data.begin() + bytes,
                     bytes_of(reader, *reader.find("a")).begin()));
    CHECK(reader.bytes_read() - before < bytes + block + 8 * 1466);

    before = reader.bytes_read();
    std::vector<std::byte> four(4);
    for (std::uint64_t offset = 0; offset < 10 * block; offset += 4) {
        for (char const* const name : {"b", "c"}) {
            reader.read(*reader.find(name), offset, four);
        }
    }
    CHECK(reader.bytes_read() - before <= 2 * 12 * block);

    before = reader.bytes_read();
    for (std::uint64_t offset = 20 * block; offset < 30 * block; offset += 4) {
        reader.verify(*reader.find("b"), offset, 4);
    }
    CHECK(reader.bytes_read() - before <= 12 * block);
}

TEST_CASE("Data that changes after it was verified is not returned") {
    TemporaryFolder const folder;
    std::uint64_t const bytes = 100'000;
    auto const data = numbered_bytes(bytes);
    write_tensors(folder / "file", {{"x", "U8", {bytes}}}, data);
    SafetensorsReader reader(folder / "file");
    TensorEntry const& x = *reader.find("x");
    reader.verify(x, 0, bytes);
    REQUIRE(bytes_of(reader, x) == data);
    std::string content = content_of(folder / "file");
    content[content.size() - 60'000] ^= 1;
    set_content(folder / "file", content);
    CHECK_THROWS_WITH(bytes_of(reader, x), contains_text("tensor 'x'") && contains_text("damaged"));
    CHECK_THROWS_AS(reader.verify(x, 0, bytes), CheckpointError);
}

TEST_CASE("Damaged checksums are found by the reads that need them") {
    TemporaryFolder const folder;
    std::uint64_t const bytes = 2 * blocks_of_group * block;
    std::uint64_t const checksum =
        write_tensors(folder / "file", {{"x", "U8", {bytes}}}, numbered_bytes(bytes));
    std::string const content = content_of(folder / "file");
    std::size_t const checksums = content.size() - 16 - 16 * blocks_of_group; // where they begin
    for (std::size_t const group : {0U, 1U}) {
        std::string changed = content;
        changed[checksums + 8 * blocks_of_group * group + 77] ^= 8;
        set_content(folder / "file", changed);
        SafetensorsReader reader(folder / "file", checksum);
        TensorEntry const& x = *reader.find("x");
        reader.verify(x, group == 0 ? bytes / 2 : 0, bytes / 2);
        CHECK_THROWS_WITH(reader.verify(x, group == 0 ? bytes / 2 - 1 : bytes / 2, 1),
                          contains_text("the checksums of tensor 'x'")
                              && contains_text((folder / "file").string()));
    }
    for (std::size_t byte = 1; byte <= 16; ++byte) { // the index names these
        std::string changed = content;
        changed[changed.size() - byte] ^= 1;
        set_content(folder / "file", changed);
        CHECK_THROWS_WITH(SafetensorsReader(folder / "file", checksum),
                          contains_text("changed or damaged"));
    }
}

TEST_CASE("A range outside of its tensor is refused") {
    TemporaryFolder const folder;
    write_tensors(folder / "file", {{"a", "U8", {9}}, {"b", "U8", {9}}}, numbered_bytes(18));
    SafetensorsReader reader(folder / "file");
    TensorEntry const& a = *reader.find("a");
    std::vector<std::byte> bytes(4);
    CHECK_THROWS_WITH(reader.read(a, 6, bytes), contains_text("tensor 'a' lie outside"));
    CHECK_THROWS_AS(reader.read(a, ~std::uint64_t{0}, bytes), CheckpointError);
    CHECK_THROWS_AS(reader.verify(a, 1, ~std::uint64_t{0}), CheckpointError);
    TensorEntry const foreign{"c", "U8", {16}, 1U << 20U, (1U << 20U) + 16};
    CHECK_THROWS_WITH(reader.read(foreign, 0, bytes), contains_text("tensor 'c' is not one of"));
    reader.read(a, 5, bytes);
    CHECK(bytes[3] == numbered_bytes(18)[8]);
}

TEST_CASE("A file of another program needs no checksums and may have unknown types") {
    TemporaryFolder const folder;
    set_content(folder / "file",
                file_with_header(R"({"b":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[4,6]},)"
                                 R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                                 6));
    SafetensorsReader reader(folder / "file");
    CHECK(reader.tensors().at(0).name == "a");
    CHECK(bytes_of(reader, *reader.find("b")) == std::vector<std::byte>(2));
    CHECK_THROWS_WITH(SafetensorsReader(folder / "file", 5), contains_text("changed or damaged"));
}

TEST_CASE("Two tensors of a file hold checksums, and are none of the program's") {
    STATIC_REQUIRE(zero::detail::holds_checksums(zero::detail::block_checksums));
    STATIC_REQUIRE(zero::detail::holds_checksums(zero::detail::group_checksums));
    STATIC_REQUIRE_FALSE(zero::detail::holds_checksums("weight"));
}

} // namespace zero::test::safetensors_reader_test
