/* Prints what HOST answers to one request: `get HOST`. */
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **words) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int error = count == 2 ? getaddrinfo(words[1], "80", &hints, &found) : EAI_NONAME;
    if (error) {
        fprintf(stderr, "%s\n", gai_strerror(error));
        return 1;
    }
    int server = socket(found->ai_family, SOCK_STREAM, 0);
    if (connect(server, found->ai_addr, found->ai_addrlen)) {
        perror("connect");
        return 1;
    }
    dprintf(server, "GET / HTTP/1.0\r\nHost: %s\r\n\r\n", words[1]);
    char answer[4096];
    for (ssize_t some; (some = read(server, answer, sizeof answer)) > 0;)
        fwrite(answer, 1, some, stdout);
    return 0;
}
