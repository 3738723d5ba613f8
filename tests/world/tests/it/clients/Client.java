import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Both clients of the standard library, with nothing said of proxies or certificates. */
public class Client {
    public static void main(String[] arguments) throws Exception {
        URI address = URI.create(arguments[1]);
        String key = "Bearer " + System.getenv("TOKEN");
        if (arguments[0].equals("HttpURLConnection")) {
            HttpURLConnection connection = (HttpURLConnection) address.toURL().openConnection();
            connection.setRequestProperty("Authorization", key);
            System.out.write(connection.getInputStream().readAllBytes());
        } else {
            HttpRequest request = HttpRequest.newBuilder(address).header("Authorization", key).build();
            HttpResponse<byte[]> answer =
                HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofByteArray());
            System.out.write(answer.body());
        }
        System.out.flush();
    }
}
