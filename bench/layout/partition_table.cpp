// Prints the tables of docs/partitioners.md: the compatibility of each partitioner and its costs on
// known models. It measures no time.

#include "support/partition_numbers.hpp"
#include "support/partitioner_compatibility.hpp"

#include <cstdio>

int main() {
    std::string const text =
        zero::test::compatibility_table() + "\n" + zero::test::partition_tables();
    return std::fputs(text.c_str(), stdout) < 0 ? 1 : 0;
}
