#include "support/catch.hpp"
#include "support/safetensors.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint_error.hpp>
#include <zero/checkpoint/safetensors_reader.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/stat.h>

namespace zero::test::damaged_file_test {

namespace {

enum class Outcome { error, right, wrong };

std::vector<TensorEntry> small_tensors() {
    return {{"a", "F32", {2, 3}}, {"none", "U8", {0}}, {"b", "BF16", {5}}, {"c", "I64", {}}};
}

std::vector<std::byte> small_data() {
    return numbered_bytes(24 + 10 + 8);
}

/// Reads each tensor that still has its name. An error must name the file.
Outcome read_small(std::filesystem::path const& file, std::optional<std::uint64_t> checksum) {
    auto const data = small_data();
    try {
        SafetensorsReader reader(file, checksum);
        std::size_t at = 0;
        for (TensorEntry const& expected : small_tensors()) {
            auto const bytes =
                static_cast<std::size_t>(expected.name == "a" ? 24
                                                              : (expected.name == "b"   ? 10
                                                                 : expected.name == "c" ? 8
                                                                                        : 0));
            if (TensorEntry const* const tensor = reader.find(expected.name)) {
                auto const found = bytes_of(reader, *tensor);
                if (found
                    != std::vector<std::byte>(data.begin() + static_cast<std::ptrdiff_t>(at),
                                              data.begin()
                                                  + static_cast<std::ptrdiff_t>(at + bytes))) {
                    return Outcome::wrong;
                }
            }
            at += bytes;
        }
    } catch (CheckpointError const& error) {
        return std::string(error.what()).find(file.string()) == std::string::npos ? Outcome::wrong
                                                                                  : Outcome::error;
    }
    return Outcome::right;
}

void check_refused(std::filesystem::path const& file, std::string const& why) {
    CHECK_THROWS_WITH(SafetensorsReader(file), contains_text(file.string()) && contains_text(why));
    CHECK_THROWS_AS(SafetensorsReader(file), CheckpointError);
}

} // namespace

TEST_CASE("A file that was cut anywhere, or has more bytes, is refused") {
    TemporaryFolder const folder;
    std::uint64_t const checksum = write_tensors(folder / "file", small_tensors(), small_data());
    std::string const content = content_of(folder / "file");
    REQUIRE(read_small(folder / "file", checksum) == Outcome::right);
    std::size_t refused = 0;
    for (std::size_t length = 0; length < content.size(); ++length) {
        set_content(folder / "cut", content.substr(0, length));
        refused += read_small(folder / "cut", std::nullopt) == Outcome::error ? 1U : 0U;
    }
    CHECK(refused == content.size());
    set_content(folder / "long", content + '\0');
    CHECK(read_small(folder / "long", std::nullopt) == Outcome::error);
}

TEST_CASE("A flipped bit is an error, and without the checksum of the index never wrong data") {
    TemporaryFolder const folder;
    std::uint64_t const checksum = write_tensors(folder / "file", small_tensors(), small_data());
    std::string const content = content_of(folder / "file");
    std::size_t accepted = 0;
    std::size_t wrong = 0;
    for (std::size_t bit = 0; bit < 8 * content.size(); ++bit) {
        std::string damaged = content;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
        set_content(folder / "damaged", damaged);
        accepted += read_small(folder / "damaged", checksum) == Outcome::error ? 0U : 1U;
        wrong += read_small(folder / "damaged", std::nullopt) == Outcome::wrong ? 1U : 0U;
    }
    CHECK(accepted == 0);
    CHECK(wrong == 0);
}

TEST_CASE("Headers of any length are refused before memory is allocated for them") {
    TemporaryFolder const folder;
    auto const with_length = [&](std::uint64_t length) {
        std::string content;
        for (unsigned byte = 0; byte < 8; ++byte) {
            content += static_cast<char>(length >> 8 * byte & 0xffU);
        }
        set_content(folder / "file", content + "{}");
        return folder / "file";
    };
    check_refused(with_length(std::uint64_t{1} << 63U), "header would have");
    check_refused(with_length(~std::uint64_t{0}), "header would have");
    check_refused(with_length(3), "header would have 3 bytes");
    check_refused(with_length(0), "parse error");
    check_refused(with_length(1), "parse error");
    CHECK(SafetensorsReader(with_length(2)).tensors().empty());
}

TEST_CASE("Headers that do not describe their data are refused") {
    TemporaryFolder const folder;
    auto const header = [&](std::string const& json) {
        set_content(folder / "file", file_with_header(json, 8));
        return folder / "file";
    };
    auto const tensor = [](std::string const& shape, std::string const& offsets) {
        return R"({"dtype":"U8","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
    };
    CHECK(SafetensorsReader(header(R"({"x":)" + tensor("[8]", "[0,8]") + "}")).tensors().size()
          == 1);

    for (char const* const offsets :
         {"[-1,7]", "[0,-8]", "[8,0]", "[0,7]", "[0,9]", "[1,9]", "[0]", "[0,8,8]", "[0.0,8]",
          "[0,1e400]", "[0,18446744073709551624]", "[true,8]", "[\"0\",8]", "{}", "8", "null"}) {
        INFO(offsets);
        check_refused(header(R"({"x":)" + tensor("[8]", offsets) + "}"), "not a valid");
    }
    for (char const* const shape :
         {"[7]", "[9]", "[-8]", "[]", "[8,0]", "8", "null", "{\"a\":8}", "[8.0]", "[[8]]",
          "[4294967296,4294967296,8]", "[18446744073709551615,8]", "[18446744073709551624]",
          "[9223372036854775809,8]"}) {
        INFO(shape);
        check_refused(header(R"({"x":)" + tensor(shape, "[0,8]") + "}"), "not a valid");
    }
    std::string const half = tensor("[4]", "[0,4]");
    check_refused(header(R"({"x":)" + half + "}"), "4 bytes and its data 8");
    check_refused(header(R"({"x":)" + half + R"(,"y":)" + half + "}"), "not where the one before");
    check_refused(header(R"({"x":)" + half + R"(,"y":)" + tensor("[3]", "[5,8]") + "}"),
                  "not where the one before");
    check_refused(header(R"({"x":)" + half + R"(,"x":)" + tensor("[4]", "[4,8]") + "}"), "twice");
    check_refused(header(R"({"x":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})"),
                  "twice");
    check_refused(header(R"({"x":{"dtype":8,"shape":[8],"data_offsets":[0,8]}})"), "not a valid");
    check_refused(header(R"({"x":{"shape":[8],"data_offsets":[0,8]}})"), "dtype");
    check_refused(header(R"({"__metadata__":{"a":1},"x":)" + tensor("[8]", "[0,8]") + "}"),
                  "not a valid");
    check_refused(header(R"({"x":)" + tensor("[-8]", "[0,8]") + "}"),
                  "tensor 'x': in 'shape' -8 is not a natural number");
    check_refused(header(R"({"x":)" + tensor("[8]", "[0,7]") + "}"),
                  "tensor 'x': its offsets do not fit its shape");
    check_refused(header(R"({"x":8})"), "tensor 'x' is no object");
    std::string const quarter = tensor("[2]", "[0,2]"); // far apart, and in any order
    check_refused(header(R"({"x":)" + tensor("[2]", "[6,8]") + R"(,"y":)" + tensor("[4]", "[2,6]")
                         + R"(,"x":)" + quarter + "}"),
                  "the name 'x' twice");
    SafetensorsReader more(header(R"({"y":{"more":[{"dtype":1}],"shape":[6],"dtype":"U8",)"
                                  R"("data_offsets":[2,8]},"x":)"
                                  + quarter + "}"));
    CHECK(more.tensors().at(0).name == "x");
    CHECK(more.tensors().at(1).shape == std::vector<std::uint64_t>{6});
    for (char const* const name : {"y", "x", "x", "y", "z", "x", "y"}) {
        CHECK(more.find_next(name) == more.find(name));
    }
    check_refused(header("[]"), "not a valid");
    check_refused(header("{"), "parse error");
    check_refused(header("{\"\xff\":1}"), "parse error");
}

TEST_CASE("Text that is nested 100000 levels deep is refused without a crash") {
    TemporaryFolder const folder;
    std::string const open(100'000, '[');
    std::string const close(100'000, ']');
    for (std::string const& json :
         {open, open + close, R"({"x":)" + open + close + "}",
          R"({"x":{"dtype":"U8","data_offsets":[0,0],"shape":)" + open + close + "}}"}) {
        set_content(folder / "file", file_with_header(json));
        check_refused(folder / "file", "not a valid");
    }
}

TEST_CASE("A message stays short whatever the header contains") {
    TemporaryFolder const folder;
    set_content(folder / "file", file_with_header('"' + std::string(3'000'000, 'a')));
    try {
        SafetensorsReader const reader(folder / "file");
        FAIL("the header was accepted");
    } catch (CheckpointError const& error) {
        CHECK(std::string(error.what()).size() < 1000);
    }
}

TEST_CASE("Opening a file is linear in the number of its tensors") {
    // A quadratic parser would take minutes, longer than the time-out of a test.
    TemporaryFolder const folder;
    std::vector<TensorEntry> tensors;
    for (int index = 0; index < 100'000; ++index) {
        tensors.push_back({"exp_avg/layers." + std::to_string(index) + ".weight", "U8", {1}});
    }
    auto const data = numbered_bytes(tensors.size());
    SafetensorsReader reader(folder / "file", write_tensors(folder / "file", tensors, data));
    REQUIRE(reader.find("exp_avg/layers.99999.weight") != nullptr);
    CHECK(bytes_of(reader, *reader.find("exp_avg/layers.99999.weight")).at(0) == data.back());
}

TEST_CASE("What is no regular file is refused, and a pipe is not waited for") {
    TemporaryFolder const folder;
    std::uint64_t const checksum = write_tensors(folder / "file", small_tensors(), small_data());
    std::filesystem::create_symlink(folder / "file", folder / "link");
    std::filesystem::create_symlink("gone", folder / "dangling");
    std::filesystem::create_directory(folder / "folder");
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    // A checkpoint, which names the index of its files, holds no links; the caller may name one.
    CHECK_THROWS_WITH(SafetensorsReader(folder / "link", checksum), contains_text("symbolic link"));
    CHECK(SafetensorsReader(folder / "link").tensors().size() == small_tensors().size() + 2);
    check_refused(folder / "dangling", "No such file");
    check_refused(folder / "folder", "not a regular file");
    check_refused(folder / "pipe", "not a regular file");
    check_refused("/dev/zero", "not a regular file");
    check_refused(folder / "missing", "No such file");
    set_content(folder / "empty", "");
    check_refused(folder / "empty", "less than 8 bytes");
    set_content(folder / "length", std::string(8, '\xff')); // and no header
    check_refused(folder / "length", "its header would have 18446744073709551615 bytes");
}

} // namespace zero::test::damaged_file_test
