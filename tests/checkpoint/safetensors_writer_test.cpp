#include "support/catch.hpp"
#include "support/safetensors.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint_error.hpp>
#include <zero/checkpoint/safetensors_reader.hpp>
#include <zero/checkpoint/safetensors_writer.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace zero::test::safetensors_writer_test {

namespace {

TensorEntry bytes_named(std::string name, std::uint64_t count) {
    return {std::move(name), "U8", {count}};
}

std::uint64_t header_bytes(std::string const& content) {
    std::uint64_t length = 0;
    for (std::size_t byte = 0; byte < 8; ++byte) {
        length |= std::uint64_t{static_cast<unsigned char>(content.at(byte))} << 8 * byte;
    }
    return length;
}

bool names_of_checksums(SafetensorsReader const& reader) {
    auto const& tensors = reader.tensors();
    return tensors.at(tensors.size() - 2).name == "xxh3_blocks"
           && tensors.back().name == "xxh3_groups";
}

} // namespace

TEST_CASE("Every type and shape comes back as it was written") {
    TemporaryFolder const folder;
    std::vector<TensorEntry> const tensors{
        {"weights", "F32", {3, 5}}, {"halves", "BF16", {7}}, {"other halves", "F16", {2, 1, 3}},
        {"bits", "U8", {9}},        {"rest", "U16", {4}},    {"steps", "I64", {2}},
        {"scalar", "F32", {}},      {"one", "U8", {1}},      {"none", "F32", {0}},
        {"no rows", "I64", {0, 4}},
    };
    std::vector<std::byte> const data = numbered_bytes(60 + 14 + 12 + 9 + 8 + 16 + 4 + 1);
    std::uint64_t const checksum = write_tensors(folder / "file", tensors, data);

    SafetensorsReader reader(folder / "file", checksum);
    std::vector<std::byte> found;
    for (TensorEntry const& tensor : tensors) {
        TensorEntry const* const entry = reader.find(tensor.name);
        REQUIRE(entry != nullptr);
        CHECK(entry->dtype == tensor.dtype);
        CHECK(entry->shape == tensor.shape);
        CHECK(entry->begin == found.size());
        auto const bytes = bytes_of(reader, *entry);
        found.insert(found.end(), bytes.begin(), bytes.end());
    }
    CHECK(found == data);
    CHECK(reader.tensors().size() == tensors.size() + 2);
    CHECK(names_of_checksums(reader));
    CHECK(reader.find("missing") == nullptr);
}

TEST_CASE("A file without tensors, or with empty ones only, is valid") {
    TemporaryFolder const folder;
    std::uint64_t const none = write_tensors(folder / "none", {}, {});
    SafetensorsReader const reader(folder / "none", none);
    CHECK(reader.tensors().size() == 2);

    // The name sorts after that of the checksums.
    std::uint64_t const empty = write_tensors(folder / "empty", {{"zzz", "F32", {0}}}, {});
    SafetensorsReader other(folder / "empty", empty);
    REQUIRE(other.find("zzz") != nullptr);
    CHECK(bytes_of(other, *other.find("zzz")).empty());
    CHECK(names_of_checksums(other));
}

TEST_CASE("The numbers of checksums change at the edge of a block, and of a block of checksums") {
    TemporaryFolder const folder;
    for (std::uint64_t const count : {1U, 2047U, 2048U, 2049U, 4096U, 1U << 19U, (1U << 19U) + 1}) {
        auto const data = numbered_bytes(count);
        std::string const name = std::to_string(count);
        std::uint64_t const checksum =
            write_tensors(folder / name, {bytes_named("x", count)}, data, 5000);
        SafetensorsReader reader(folder / name, checksum);
        auto const numbers = [&](char const* of) { return reader.find(of)->shape.at(0); };
        CHECK(numbers("xxh3_blocks") == (count + 2047) / 2048);
        CHECK(numbers("xxh3_groups") == (count + (1U << 19U) - 1) >> 19U);
        CHECK(bytes_of(reader, *reader.find("x")) == data);
    }
}

TEST_CASE("The cuts of append do not change the file") {
    TemporaryFolder const folder;
    std::size_t const count = 2'200'000;
    auto const data = numbered_bytes(count);
    std::vector<TensorEntry> const tensors{bytes_named("a", 70'001),
                                           bytes_named("b", count - 70'001)};
    std::uint64_t const checksum = write_tensors(folder / "whole", tensors, data);
    std::string const whole = content_of(folder / "whole");
    for (std::size_t const cut : {997U, 2047U, 2048U, 2049U, 1048575U, 1048576U, 1048577U}) {
        std::string const name = std::to_string(cut);
        CHECK(write_tensors(folder / name, tensors, data, cut) == checksum);
        CHECK(content_of(folder / name) == whole);
    }
}

TEST_CASE("The data begins at a multiple of 64 bytes and is followed by the checksums") {
    TemporaryFolder const folder;
    for (std::size_t length = 1; length < 70; ++length) {
        std::string const name(length, 'n');
        write_tensors(folder / name, {bytes_named(name, 3)}, numbered_bytes(3));
        std::string const content = content_of(folder / name);
        CHECK((8 + header_bytes(content)) % 64 == 0);
        CHECK(content.size() == 8 + header_bytes(content) + 3 + 8 + 8);
    }
}

TEST_CASE("Names and metadata may be any text in UTF-8") {
    TemporaryFolder const folder;
    std::string const name = "a/\"b\"\\\n\xc3\xa9\xf0\x9f\x98\x80";
    std::map<std::string, std::string> const metadata{{name, "value \"quoted\""}};
    SafetensorsWriter writer(folder / "file", {bytes_named(name, 1)}, metadata);
    writer.append(numbered_bytes(1));
    std::uint64_t const checksum = writer.finish();
    SafetensorsReader const reader(folder / "file", checksum);
    CHECK(reader.find(name) != nullptr);
    CHECK(reader.metadata().at(name) == "value \"quoted\"");
    CHECK_THROWS_AS(SafetensorsWriter(folder / "bad", {bytes_named("\xff", 1)}), CheckpointError);
}

TEST_CASE("Too much or too little data is an error that names the file") {
    TemporaryFolder const folder;
    SafetensorsWriter writer(folder / "file", {bytes_named("x", 10)});
    writer.append(numbered_bytes(9));
    CHECK_THROWS_WITH(writer.append(numbered_bytes(2)),
                      contains_text((folder / "file").string()) && contains_text("more data"));
    CHECK_THROWS_WITH(writer.finish(), contains_text("got 9 bytes") && contains_text("10"));
    writer.append(numbered_bytes(1));
    CHECK(SafetensorsReader(folder / "file", writer.finish()).find("x") != nullptr);
}

TEST_CASE("Names that are taken, unknown types and sizes beyond any file are refused") {
    TemporaryFolder const folder;
    auto const refused = [&](std::vector<TensorEntry> tensors, char const* name) {
        CHECK_THROWS_WITH(SafetensorsWriter(folder / name, std::move(tensors)),
                          contains_text(name) && contains_text("rename"));
    };
    refused({bytes_named("x", 1), bytes_named("x", 1)}, "twice");
    refused({bytes_named("__metadata__", 1)}, "metadata");
    refused({bytes_named("xxh3_blocks", 1)}, "checksums");
    refused({bytes_named("xxh3_groups", 1)}, "groups");
    refused({{"x", "F31", {1}}}, "type");
    refused({{"x", "F32", {std::uint64_t{1} << 62U}}}, "overflow");
    refused({bytes_named("x", std::uint64_t{1} << 61U), bytes_named("y", ~std::uint64_t{0} / 2)},
            "sum");
}

TEST_CASE("A header that no reader accepts is not written") {
    TemporaryFolder const folder;
    std::vector<TensorEntry> tensors;
    for (int index = 0; index < 101; ++index) {
        tensors.push_back(bytes_named(std::string(1'000'000, 'n') + std::to_string(index), 0));
    }
    CHECK_THROWS_WITH(SafetensorsWriter(folder / "file", std::move(tensors)),
                      contains_text((folder / "file").string()) && contains_text("fewer tensors"));
}

TEST_CASE("A file that exists is not overwritten") {
    TemporaryFolder const folder;
    set_content(folder / "file", "precious");
    CHECK_THROWS_AS(SafetensorsWriter(folder / "file", {}), CheckpointError);
    CHECK(content_of(folder / "file") == "precious");
}

} // namespace zero::test::safetensors_writer_test
