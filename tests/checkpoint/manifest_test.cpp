#include "fuzz_input.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/checkpoint_error.hpp>
#include <zero/checkpoint/detail/manifest_text.hpp>
#include <zero/checkpoint/detail/plan_manifest.hpp>
#include <zero/checkpoint/manifest.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace zero::test::manifest_test {

namespace {

Manifest example() {
    Manifest manifest;
    manifest.composition = "stage 2 of \"three\"";
    manifest.optimizer = "zero::AdamW";
    manifest.types = {{{"parameter", "BF16", 1, true}, {"master", "F32"}, {"scale", "U8", 64}},
                      {{"parameter", "F32", 1, true}}};
    manifest.parameters = {
        {"layer.0/\"w\"", {4, 8}, 0, 1, true, {{0, 0, 20}, {1, 20, 32}}},
        {"\xc3\xa9\xf0\x9f\x98\x80", {}, 1, 0, false, {{1, 0, 1}}},
        {"empty", {0, 3}, 1, 0, true, {}},
    };
    manifest.files = {{"rank-0.safetensors", ~std::uint64_t{0}}, {"rank-1.safetensors", 5}};
    manifest.scalars.counts = {{"step_count", ~std::uint64_t{0}}, {"flag", 0}};
    manifest.scalars.numbers = {{"rate", 0.1},
                                {"tiny", 5e-324},
                                {"zero", -0.0},
                                {"whole", 3.0},
                                {"big", std::numeric_limits<double>::max()},
                                {"third", static_cast<double>(1.0F / 3.0F)}};
    manifest.scalars.texts = {{"bytes", "00ff"}};
    manifest.extras = {{"position \"x\"", "line\n\xe2\x82\xac"}, {"", ""}};
    return manifest;
}

void check_refused(Manifest const& manifest, std::string const& why) {
    CHECK_THROWS_WITH(Manifest::from_json(manifest.to_json(), "a/manifest.json"),
                      contains_text("a/manifest.json") && contains_text(why));
}

void check_text_refused(std::string const& json, std::string const& why) {
    CHECK_THROWS_WITH(Manifest::from_json(json, "the-file"),
                      contains_text("the-file") && contains_text(why));
    CHECK_THROWS_AS(Manifest::from_json(json, "the-file"), CheckpointError);
}

std::string replaced(std::string text, std::string const& from, std::string const& to) {
    std::size_t const at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

bool is_refused(std::string const& json) {
    try {
        (void)Manifest::from_json(json, "x");
        return false;
    } catch (CheckpointError const&) {
        return true;
    }
}

} // namespace

TEST_CASE("A manifest comes back with every bit and every character") {
    Manifest const manifest = example();
    std::string const json = manifest.to_json();
    Manifest const found = Manifest::from_json(json, "x");
    CHECK(found.to_json() == json);
    CHECK(found.composition == manifest.composition);
    CHECK(found.optimizer == manifest.optimizer);
    CHECK(found.extras == manifest.extras);
    CHECK(found.scalars.counts == manifest.scalars.counts);
    CHECK(found.scalars.texts == manifest.scalars.texts);
    REQUIRE(found.scalars.numbers.size() == manifest.scalars.numbers.size());
    for (auto const& [name, value] : manifest.scalars.numbers) {
        CHECK(std::bit_cast<std::uint64_t>(found.scalars.numbers.at(name))
              == std::bit_cast<std::uint64_t>(value));
    }
    CHECK(found.parameters.at(0).name == manifest.parameters[0].name);
    CHECK(found.parameters.at(0).intervals.at(1).begin == 20);
    CHECK(found.parameters.at(1).name == manifest.parameters[1].name);
    CHECK_FALSE(found.parameters.at(1).trainable);
    CHECK(found.parameters.at(1).elements() == 1);
    CHECK(found.parameters.at(2).elements() == 0);
    CHECK(found.types.at(0).at(2).item_elements == 64);
    CHECK(found.types.at(0).at(0).has_frozen);
    CHECK(found.files.at(0).checksum == ~std::uint64_t{0});
}

TEST_CASE("A manifest is written as the JSON library prints a tree with one space of indentation") {
    Manifest same_names = example(); // of which one is written, as in a tree
    same_names.scalars.texts["rate"] = "text";
    for (Manifest const& manifest : {Manifest(), example(), same_names}) {
        std::string const json = manifest.to_json();
        nlohmann::json tree = nlohmann::json::parse(json);
        REQUIRE(tree.erase("checksum") == 1);
        std::string printed = tree.dump(1);
        printed.resize(printed.size() - std::string("\n}").size());
        CHECK(with_checksum(printed) == json);
    }
}

TEST_CASE("A manifest is read from a file in parts, wherever they end") {
    TemporaryFolder const folder;
    Manifest manifest = example();
    manifest.composition = "x";
    std::size_t const rest = manifest.to_json().size() - manifest.composition.size();
    std::size_t const part = detail::manifest_part_bytes;
    for (std::size_t const size : {part - 1, part, part + 1, part + 3, part + 4, part + 20,
                                   part + 21, part + 36, part + 37, part + 100, 2 * part + 5}) {
        manifest.composition = std::string(size - rest, 'x');
        std::string const json = manifest.to_json();
        REQUIRE(json.size() == size);
        set_content(folder / Manifest::file, json);
        CHECK(Manifest::read(folder.path()).to_json() == json);
        for (std::size_t const at : {part / 2, size - 38, size - 37, size - 10, size - 1}) {
            std::string damaged = json;
            damaged[at] = static_cast<char>(damaged[at] ^ 1);
            set_content(folder / Manifest::file, damaged);
            CHECK_THROWS_AS(Manifest::read(folder.path()), CheckpointError);
        }
        for (std::string const& more : {std::string("\n"), std::string(1, '\0'), json}) {
            set_content(folder / Manifest::file, json + more);
            CHECK_THROWS_AS(Manifest::read(folder.path()), CheckpointError);
        }
    }
}

TEST_CASE("The name of a tensor tells its interval unless it is the whole parameter") {
    Manifest const manifest = example();
    auto const& parameter = manifest.parameters[0];
    CHECK(tensor_name({"master", "F32"}, parameter, parameter.intervals[1])
          == "master/layer.0/\"w\"[20:32]");
    CHECK(tensor_name({"master", "F32"}, parameter, {0, 0, 32}) == "master/layer.0/\"w\"");
}

TEST_CASE("A manifest of which any bit was flipped or any byte cut is refused") {
    std::string const json = example().to_json();
    CHECK_FALSE(is_refused(json));
    std::size_t accepted = 0;
    for (std::size_t bit = 0; bit < 8 * json.size(); ++bit) {
        std::string damaged = json;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
        accepted += is_refused(damaged) ? 0U : 1U;
    }
    CHECK(accepted == 0);
    for (std::size_t length = 0; length < json.size(); ++length) {
        accepted += is_refused(json.substr(0, length)) ? 0U : 1U;
    }
    CHECK(accepted == 0);
}

TEST_CASE("Another version, format or checksum is refused, in words that say which") {
    std::string const json = example().to_json();
    check_text_refused(replaced(json, "\"version\": 1", "\"version\": 2"), "use a newer library");
    check_text_refused(replaced(json, "\"version\": 1", "\"version\": -1"), "natural number");
    check_text_refused(replaced(json, "\"version\": 1", "\"version\": 1e300"), "natural number");
    check_text_refused(replaced(json, "zero checkpoint", "xero checkpoint"), "format");
    check_text_refused(replaced(json, "stage 2", "stage 3"), "changed or damaged");
    check_text_refused(replaced(json, "\"version\": 1", "\"version\": 1, \"version\": 1"), "twice");
    check_text_refused(replaced(json, "32", "18446744073709551616"), "changed or damaged");
    check_text_refused("", "parse error");
    check_text_refused("[]", "no object");
    check_text_refused("{}", "format");
    std::string const deep(200'000, '[');
    check_text_refused(deep, "nested too deeply");
    check_text_refused(R"({"format":"zero checkpoint","version":1,"x":)" + deep
                           + std::string(deep.size(), ']') + "}",
                       "nested too deeply");
}

TEST_CASE("A file name that leads out of the folder is refused") {
    for (char const* const name : {"../x", "/etc/passwd", ".x", "a/b", "", ".", "..", "a/../b"}) {
        Manifest manifest = example();
        manifest.files[1].name = name;
        check_refused(manifest, "not a plain, unique name");
    }
    Manifest manifest = example();
    manifest.files[1].name = std::string("a\0b", 3);
    check_refused(manifest, "the file name 'a"); // the message ends there
    manifest.files[1].name = manifest.files[0].name;
    check_refused(manifest, "not a plain, unique name");
}

TEST_CASE("Intervals that overlap, leave a gap or name no file are refused") {
    for (std::vector<ManifestInterval> const& intervals :
         std::vector<std::vector<ManifestInterval>>{{},
                                                    {{0, 0, 20}},
                                                    {{0, 0, 33}},
                                                    {{0, 1, 32}},
                                                    {{0, 0, 20}, {1, 19, 32}},
                                                    {{0, 0, 20}, {1, 21, 32}},
                                                    {{0, 20, 32}, {1, 0, 20}},
                                                    {{0, 0, 20}, {1, 20, 20}, {1, 20, 32}},
                                                    {{0, 0, 32}, {0, 0, 32}},
                                                    {{2, 0, 32}},
                                                    {{~std::uint64_t{0}, 0, 32}}}) {
        Manifest manifest = example();
        manifest.parameters[0].intervals = intervals;
        check_refused(manifest, "'layer.0/\"w\"'");
    }
}

TEST_CASE("What is no interval is refused where one belongs, and ignored elsewhere") {
    std::string const whole = example().to_json();
    std::string const json =
        whole.substr(0, whole.find(",\n \"checksum\": \"", whole.find("types")));
    std::string const second = "[\n     1,\n     20,\n     32\n    ]";
    for (auto const& [text, why] : std::vector<std::pair<std::string, std::string>>{
             {"[1, 20]", "index 2"},
             {"[]", "index 0"},
             {"7", "in 'intervals' 7 is not an array"},
             {R"({"0": 1, "1": 20, "2": 32})", "in 'intervals' an object is not an array"},
             {"[1, -20, 32]", "-20 is not a natural number"},
             {"[1, 20, 32.5]", "32.5 is not a natural number"},
             {"[1, 20, \"32\"]", "\"32\" is not a natural number"},
             {"[1, 20, 32], [1, 32]", "index 2"},
             {"[1, 20, [32]]", "nested too deeply"},
             {"[1, 21, 32]", "leave a gap"}}) {
        check_text_refused(with_checksum(replaced(json, second, text)), why);
    }
    auto const found = Manifest::from_json(
        with_checksum(replaced(json, "\"composition\"",
                               R"("more": [{"intervals": [[0, 0, 1]]}], "composition")")),
        "x");
    CHECK(found.to_json() == whole);
    check_text_refused(
        with_checksum(replaced(json, "\"parameters\": [",
                               R"("parameters": {"intervals": [[0, 0, 1]]}, "x": [)")),
        "object stands where an array belongs");
    check_text_refused(with_checksum(replaced(json, "\"parameters\": [",
                                              R"("parameters": [[[0, 0, 1]]], "x": [)")),
                       "a array stands in 'parameters' where an object belongs");
}

TEST_CASE("What is wrong with a parameter, a file or an array is named, with the member") {
    Manifest manifest = example();
    manifest.files[1].host = "a host";
    manifest.arrays = {{"array", "U8", {2}, true, {{0, 0, 1}, {1, 1, 2}}}};
    manifest.base = {{"base", {3}, 0, 0, false, {}, 7}};
    std::string const whole = manifest.to_json();
    std::string const json = whole.substr(0, whole.rfind(",\n \"checksum\": \""));
    std::string const first = "{\n   \"group\": 1,\n   \"intervals\": [\n    [\n     0,";
    for (auto const& [from, to, why] : std::vector<std::array<std::string, 3>>{
             {"\"group\": 1", "\"grown\": 1", "'layer.0/\"w\"': it has no 'group'"},
             {"\"group\": 1", "\"group\": 1, \"group\": 1", "has a name twice"},
             {"\"group\": 1", "\"group\": true",
              "'layer.0/\"w\"': in 'group' true is not a natural number"},
             {"\"group\": 1", "\"group\": [1]", "in 'group' an array is not a natural number"},
             {"\"trainable\": true", "\"trainable\": 1",
              "'layer.0/\"w\"': in 'trainable' 1 is not true or false"},
             {"4,\n    8", "4,\n    -8", "in 'shape' -8 is not a natural number"},
             {"4,\n    8", "4,\n    [8]", "in 'shape' an array is not a natural number"},
             {"\"name\": \"base\"", "\"name\": null", "in 'name' null is not a text"},
             {"\"hash\": \"0", "\"hash\": \"x", "not 16 hexadecimal digits"},
             {"\"checksum\": \"f", "\"checksum\": \"x", "'rank-0.safetensors': its checksum"},
             {"\"rank\": 0", "\"x\": 0", "'rank-1.safetensors': it has no 'rank'"},
             {"\"is_by_rows\": true", "\"x\": true", "'array': it has no 'is_by_rows'"},
             {first, "7, " + first, "a number stands in 'parameters' where an object belongs"}}) {
        INFO(to);
        check_text_refused(with_checksum(replaced(json, from, to)), why);
    }
    // Members of other names are ignored, whatever they contain, and rows may be longer.
    for (std::string const more : {"1", "\"x\"", "[[1], {\"group\": 2}]", "{\"name\": []}"}) {
        std::string const changed =
            replaced(json, "\"group\": 1", "\"more\": " + more + ", \"group\": 1");
        CHECK(Manifest::from_json(with_checksum(changed), "x").to_json() == whole);
    }
    CHECK(Manifest::from_json(with_checksum(replaced(json, "20,\n     32", "20, 32, 7, 8")), "x")
              .to_json()
          == whole);
}

TEST_CASE("Parameters and arrays that cannot be right are refused") {
    Manifest const good = example();
    auto const changed = [&](auto const& change) {
        Manifest manifest = good;
        change(manifest);
        return manifest;
    };
    check_refused(changed([](Manifest& m) { m.parameters[2].name = "\xc3\xa9\xf0\x9f\x98\x80"; }),
                  "two parameters");
    check_refused(changed([](Manifest& m) { m.parameters[0].type = 2; }), "unknown type");
    check_refused(changed([](Manifest& m) {
                      m.parameters[0].shape = {std::uint64_t{1} << 32U, std::uint64_t{1} << 32U};
                  }),
                  "overflows");
    check_refused(changed([](Manifest& m) { m.types[0][1].name = "a/b"; }), "array 'a/b'");
    check_refused(changed([](Manifest& m) { m.types[0][1].name = "parameter"; }), "'parameter'");
    check_refused(changed([](Manifest& m) { m.types[1].clear(); }), "no array 'parameter'");
    check_refused(changed([](Manifest& m) { m.types[0][2].item_elements = 0; }), "array 'scale'");
    check_refused(changed([](Manifest& m) {
                      m.scalars.numbers["rate"] = std::numeric_limits<double>::quiet_NaN();
                  }),
                  "natural number");
    CHECK_THROWS_AS(changed([](Manifest& m) { m.extras["x"] = "\xff"; }).to_json(),
                    CheckpointError);
}

TEST_CASE("Reading a folder names the file that is missing or no file") {
    TemporaryFolder const folder;
    CHECK_THROWS_WITH(Manifest::read(folder.path()),
                      contains_text((folder / "manifest.json").string()));
    set_content(folder / "manifest.json", example().to_json());
    CHECK(Manifest::read(folder.path()).to_json() == example().to_json());
    std::filesystem::rename(folder / "manifest.json", folder / "x");
    std::filesystem::create_symlink("x", folder / "manifest.json");
    CHECK_THROWS_WITH(Manifest::read(folder.path()), contains_text("symbolic link"));
}

TEST_CASE("Bytes are numbers only where scales belong to them") {
    CHECK(zero::detail::number_dtype("BF16") == DType::bfloat16);
    CHECK(zero::detail::number_dtype("U8", true) == DType::power8);
    CHECK_FALSE(zero::detail::number_dtype("U8").has_value());
}

} // namespace zero::test::manifest_test
