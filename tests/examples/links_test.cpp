#include "support/catch.hpp"
#include "support/page.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

// Links between the pages: every relative link leads to a file or folder of the project, and its
// anchor to a heading of that page. The pages stay short, and one of them lists all.

using namespace zero::test;

namespace {

namespace fs = std::filesystem;

/// Returns the paths of all pages from the root.
std::vector<std::string> pages() {
    std::vector<std::string> found{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"};
    for (auto const& entry : fs::recursive_directory_iterator(ZERO_SOURCE_DIR "/docs")) {
        if (entry.path().extension() == ".md") {
            found.push_back(fs::relative(entry.path(), ZERO_SOURCE_DIR).generic_string());
        }
    }
    return found;
}

/// Returns a line without the code between backticks.
std::string without_code(std::string line) {
    for (std::size_t begin = line.find('`'); begin != std::string::npos; begin = line.find('`')) {
        std::size_t const end = line.find('`', begin + 1);
        line.erase(begin, end == std::string::npos ? end : end - begin + 1);
    }
    return line;
}

/// Returns the targets of all links, except those to other sites. Code is skipped.
std::vector<std::string> links_of(std::string const& text) {
    std::vector<std::string> found;
    bool is_code = false;
    for (std::string const& raw : lines_of(text)) {
        is_code = is_code != (raw.substr(0, 3) == "```");
        std::string const line = is_code ? "" : without_code(raw);
        for (std::size_t at = line.find("]("); at != std::string::npos;
             at = line.find("](", at + 1)) {
            std::string const target = line.substr(at + 2, line.find(')', at) - at - 2);
            if (target.find("://") == std::string::npos) {
                found.push_back(target);
            }
        }
    }
    return found;
}

/// Counts words as `wc -w` does.
std::size_t words_of(std::string const& text) {
    std::istringstream stream(text);
    std::size_t words = 0;
    for (std::string word; stream >> word; ++words) {}
    return words;
}

/// Returns the anchor that GitHub gives a heading: lower case, '-' for spaces, other signs dropped.
std::string anchor_of(std::string const& heading) {
    std::string anchor;
    for (char const sign : heading.substr(heading.find(' ') + 1)) {
        bool const is_upper = sign >= 'A' && sign <= 'Z';
        bool const is_kept = (sign >= 'a' && sign <= 'z') || (sign >= '0' && sign <= '9')
                             || sign == '-' || sign == '_';
        if (is_upper) {
            anchor += static_cast<char>(sign - 'A' + 'a');
        } else if (is_kept) {
            anchor += sign;
        } else if (sign == ' ') {
            anchor += '-';
        }
    }
    return anchor;
}

bool has_anchor(std::string const& text, std::string const& anchor) {
    for (std::string const& line : lines_of(text)) {
        if (!line.empty() && line[0] == '#' && anchor_of(line) == anchor) {
            return true;
        }
    }
    return false;
}

/// Returns whether the target of a link on this page exists.
bool resolves(std::string const& page, std::string const& link) {
    std::size_t const hash = link.find('#');
    fs::path const target =
        hash == 0 ? fs::path(page) : fs::path(page).parent_path() / link.substr(0, hash);
    if (!fs::exists(fs::path(ZERO_SOURCE_DIR) / target)) {
        return false;
    }
    return hash == std::string::npos
           || has_anchor(text_of(target.generic_string()), link.substr(hash + 1));
}

} // namespace

TEST_CASE("Every relative link of the pages leads to a file, and to a heading where it names one") {
    std::size_t links = 0;
    for (std::string const& page : pages()) {
        for (std::string const& link : links_of(text_of(page))) {
            INFO(page << ": " << link);
            CHECK(resolves(page, link));
            ++links;
        }
    }
    CHECK(links > 50);
}

TEST_CASE("A link to nothing does not resolve") {
    CHECK(resolves("docs/design.md", "../README.md#status"));
    CHECK_FALSE(resolves("docs/design.md", "CONTRIBUTING.md"));
    CHECK_FALSE(resolves("docs/design.md", "../README.md#no-such-heading"));
    CHECK(links_of("[a](b.md) ![c](d.svg)\n```\n[e](f)\n```\n`[h](i)` [g](https://h)")
          == std::vector<std::string>{"b.md", "d.svg"});
}

TEST_CASE(
    "No page of docs/ has more than 3,500 words, and all together not more than their bound") {
    constexpr std::size_t most_of_a_page = 3'500;
    constexpr std::size_t most_of_all = 40'000; // cut elsewhere before you raise it
    // Pages of parts that the bound on all did not know have one of their own.
    std::vector<std::string> const later{"docs/groups.md", "docs/offload.md", "docs/same_bits.md",
                                         "docs/wire.md", "docs/guides/python.md"};
    constexpr std::size_t most_of_a_later_page = 2'000;
    std::size_t all = 0;
    for (std::string const& page : pages()) {
        if (page.rfind("docs/", 0) != 0) {
            continue;
        }
        std::size_t const words = words_of(text_of(page));
        INFO(page << ": " << words << " words");
        if (std::find(later.begin(), later.end(), page) != later.end()) {
            CHECK(words <= most_of_a_later_page);
            continue;
        }
        CHECK(words <= most_of_a_page);
        all += words;
    }
    CHECK(all > 20'000);
    CHECK(all <= most_of_all);
    CHECK(words_of("a | b\n\n  cd\n") == 4);
}

TEST_CASE("The index docs/README.md lists every page below docs/") {
    std::vector<std::string> const links = links_of(text_of("docs/README.md"));
    for (std::string const& page : pages()) {
        if (page.rfind("docs/", 0) == 0 && page != "docs/README.md") {
            INFO(page);
            CHECK(std::find(links.begin(), links.end(), page.substr(5)) != links.end());
        }
    }
}

TEST_CASE("The page of errors names every exception of the library and every status of C") {
    std::string const page = text_of("docs/errors.md");
    std::set<std::string> exceptions{"Error"};
    for (bool has_grown = true; has_grown;) { // until no class derives from one of them
        std::size_t const before = exceptions.size();
        for (auto const& entry :
             fs::recursive_directory_iterator(ZERO_SOURCE_DIR "/include/zero")) {
            if (entry.path().extension() != ".hpp") {
                continue;
            }
            for (std::string const& line :
                 lines_of(text_of(fs::relative(entry.path(), ZERO_SOURCE_DIR).generic_string()))) {
                std::size_t const middle = line.find(" : public ");
                if (line.rfind("class ", 0) != 0 || middle == std::string::npos) {
                    continue;
                }
                std::string const base = line.substr(middle + 10, line.find(" {") - middle - 10);
                if (exceptions.contains(base)) {
                    exceptions.insert(line.substr(6, middle - 6));
                }
            }
        }
        has_grown = exceptions.size() != before;
    }
    CHECK(exceptions.size() > 15);
    for (std::string const& name : exceptions) {
        INFO(name);
        CHECK((name == "Error" || page.find('`' + name + '`') != std::string::npos));
    }
    std::size_t statuses = 0;
    std::string const header = text_of("include/zero_c.h");
    std::string const list = header.substr(0, header.find("} zero_status;"));
    for (std::size_t at = list.find("typedef enum zero_status"); at != std::string::npos;
         at = list.find("\n    ZERO_", at + 1)) {
        std::size_t const first = list.find("ZERO_", at);
        std::string const name = list.substr(first, list.find(' ', first) - first);
        INFO(name);
        CHECK((name == "ZERO_OK" || page.find('`' + name + '`') != std::string::npos));
        ++statuses;
    }
    CHECK(statuses >= 13);
}
